"""ASK: which passwords are asked for, once and on a terminal only."""

import getpass
import io
from pathlib import Path

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.commands.asking import SSH, SUDO, VAULT, ask_password, parse_ask
from launcher.commands.inventory import open_inventory


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Pretend that there is a terminal, on which `typed` is typed; return the questions."""
    questions: list[str] = []

    def answer(question: str) -> str:
        questions.append(question)
        return "geheim"

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr(getpass, "getpass", answer)
    return questions


def test_a_list_of_what_the_verb_has_a_use_for() -> None:
    assert parse_ask("", (VAULT,)) == frozenset()
    assert parse_ask("sudo, vault", (SUDO, SSH, VAULT)) == {SUDO, VAULT}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Sudo", "ASK=Sudo: must be of sudo, ssh, vault, with commas between"),
        ("vault,sudo", "ASK=vault,sudo: this target has no use for sudo; it may ask for vault"),
    ],
)
def test_what_it_can_not_be(text: str, message: str) -> None:
    with pytest.raises(RingmasterError, match=message) as raised:
        parse_ask(text, (VAULT,))
    assert raised.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize("name", [SUDO, SSH, VAULT])
def test_without_a_terminal_it_is_refused_with_the_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("geheim\n"))
    with pytest.raises(RingmasterError, match=f"ASK={name}: .*no terminal.*gives it unattended") as raised:
        ask_password(name)
    assert raised.value.exit_code == ExitCode.USAGE


def test_a_setting_that_asks_is_named_in_the_place_of_ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setenv("ANSIBLE_ASK_VAULT_PASS", "1")
    path = tmp_path / "hosts.yml"
    path.write_text("nodes: {hosts: {a: {}}}\n")
    with pytest.raises(RingmasterError, match=r"^ANSIBLE_ASK_VAULT_PASS: there is no terminal"):
        open_inventory(str(path))


@pytest.mark.parametrize("typed", ["", None])
def test_nothing_typed_is_refused(typed: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(_question: str) -> str:
        if typed is None:
            raise EOFError
        return typed

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr(getpass, "getpass", answer)
    with pytest.raises(RingmasterError, match="no password was typed"):
        ask_password(SUDO)


def test_each_is_asked_for_once_and_goes_with_the_inventory(asked: list[str], tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text("nodes: {hosts: {a: {}}}\n")
    opened = open_inventory(str(path), ask="ssh,sudo,vault", askable=(SUDO, SSH, VAULT))
    assert asked == ["Vault password (default): ", "ssh password of the nodes: ", "sudo password on the nodes: "]
    assert (opened.passwords.sudo, opened.passwords.ssh) == ("geheim", "geheim")
    assert opened.passwords.vault.all == (("default", b"geheim"),)
    assert opened.hosts[0].ssh.has_password, "the first contact must not refuse it"
    assert [host.ssh.password for host in (*opened.hosts, *opened.everyone())] == ["geheim"] * 2
    assert len(asked) == 3
    assert "geheim" not in repr(opened)


def test_a_node_for_which_the_inventory_has_a_password_keeps_that(asked: list[str], tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text("nodes: {hosts: {a: {ansible_password: own}, b: {}}}\n")
    opened = open_inventory(str(path), ask="ssh")
    assert asked and [host.ssh.password for host in opened.hosts] == ["own", "geheim"]


def test_a_broken_inventory_is_refused_before_anybody_is_asked(asked: list[str]) -> None:
    with pytest.raises(RingmasterError, match="no such inventory"):
        open_inventory("/nowhere/hosts.yml", ask="sudo", askable=(SUDO,))
    assert not asked
