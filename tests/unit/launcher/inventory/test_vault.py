"""What is encrypted with Ansible Vault: its passwords come from where Ansible takes them, and errors say how."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT
from launcher.inventory.hosts import read
from launcher.inventory.vault import VaultPasswords, find_passwords

HOSTS = "nodes:\n  hosts:\n    a: {}\n"


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VAULT_PASSWORD_FILE", "VAULT_IDENTITY_LIST", "ASK_VAULT_PASS", "CONFIG"):
        monkeypatch.delenv(f"ANSIBLE_{name}", raising=False)


def encrypted(text: str, password: str, vault_id: str = "default") -> str:
    from ansible.parsing.vault import VaultLib, VaultSecret  # torch._dynamo can't be imported after Ansible

    return VaultLib().encrypt(text, secret=VaultSecret(password.encode()), vault_id=vault_id).decode()


def value(text: str, password: str, vault_id: str = "default") -> str:
    """Return a YAML value, as `ansible-vault encrypt_string` prints it."""
    return "!vault |\n" + "".join(f"        {line}\n" for line in encrypted(text, password, vault_id).splitlines())


def passwords(*listed: tuple[str, str]) -> VaultPasswords:
    return VaultPasswords(listed=tuple((name, password.encode()) for name, password in listed))


def nobody(question: str, _asked_by: str) -> str:
    raise AssertionError(f"asked {question!r}")


def refusal(path: Path, given: VaultPasswords) -> str:
    with pytest.raises(RingmasterError) as caught:
        read(path, passwords=given)
    assert caught.value.exit_code == ExitCode.USAGE
    message = str(caught.value)
    assert "\n" not in message and "docs/provision.md" in message
    return message


class TestWholeFiles:
    @pytest.fixture
    def inventory(self, tmp_path: Path) -> Path:
        (tmp_path / "hosts.yml").write_text(HOSTS)
        (tmp_path / "group_vars" / "nodes").mkdir(parents=True)
        (tmp_path / "group_vars" / "nodes" / "vault.yml").write_text(
            encrypted("ansible_host: 10.0.0.7\nansible_become_password: geheim\n", "right", "prod")
        )
        return tmp_path / "hosts.yml"

    def test_are_decrypted(self, inventory: Path) -> None:
        (host,) = read(inventory, passwords=passwords(("dev", "other"), ("default", "right")))
        assert host.address == "10.0.0.7"

    def test_without_a_password_the_message_names_the_file_and_the_ways(self, inventory: Path) -> None:
        message = refusal(inventory, passwords())
        assert message.startswith(str(inventory.parent / "group_vars" / "nodes" / "vault.yml"))
        assert "ASK=vault" in message and "ANSIBLE_VAULT_PASSWORD_FILE" in message

    def test_with_a_wrong_one_it_says_which_was_tried(self, inventory: Path) -> None:
        message = refusal(inventory, passwords(("dev", "falsch")))
        assert message.startswith(str(inventory.parent / "group_vars" / "nodes" / "vault.yml"))
        assert "(id dev) doesn't open it" in message and "falsch" not in message

    def test_the_inventory_itself_may_be_one(self, tmp_path: Path) -> None:
        path = tmp_path / "hosts.yml"
        path.write_text(encrypted(HOSTS, "right"))
        assert [host.name for host in read(path, passwords=passwords(("default", "right")))] == ["a"]
        assert refusal(path, passwords()).startswith(f"{path}: encrypted")
        assert refusal(path, passwords(("default", "no"))).startswith(f"{path}: encrypted")


class TestValues:
    def test_are_decrypted_with_the_password_that_fits(self, tmp_path: Path) -> None:
        path = tmp_path / "hosts.yml"
        path.write_text(
            "nodes:\n  hosts:\n    a:\n"
            f"      ansible_host: {value('10.0.0.8', 'one', 'dev')}"
            f"      ansible_user: {value('ubuntu', 'two', 'prod')}"
        )
        (host,) = read(path, passwords=passwords(("dev", "one"), ("prod", "two")))
        assert (host.address, host.ssh.user) == ("10.0.0.8", "ubuntu")
        assert "a: ansible_user: encrypted" in refusal(path, passwords(("dev", "one")))

    def test_one_that_nobody_needs_here_needs_no_password(self, tmp_path: Path) -> None:
        path = tmp_path / "hosts.yml"
        secret = value("geheim", "right")
        path.write_text(f"nodes:\n  hosts:\n    a:\n      ansible_become_password: {secret}      x: {secret}")
        assert [host.name for host in read(path)] == ["a"]

    def test_a_password_for_ssh_that_stays_encrypted_is_no_error(self, tmp_path: Path) -> None:
        path = tmp_path / "hosts.yml"
        path.write_text(f"nodes:\n  hosts:\n    a:\n      ansible_password: {value('geheim', 'right')}")
        for given, password in ((passwords(), ""), (passwords(("x", "no")), ""), (passwords(("x", "right")), "geheim")):
            ssh = read(path, passwords=given)[0].ssh
            assert (ssh.has_password, ssh.password) == (True, password)

    def test_one_behind_a_template_is_named_by_the_variable_that_needs_it(self, tmp_path: Path) -> None:
        path = tmp_path / "hosts.yml"
        path.write_text(
            f"nodes:\n  hosts:\n    a:\n      ansible_host: '{{{{ hidden }}}}'\n      hidden: {value('h', 'p')}"
        )
        assert refusal(path, passwords()).startswith(f"{path}: a: ansible_host: encrypted")


class TestPasswords:
    def test_without_settings_there_are_none_and_nobody_is_asked(self) -> None:
        assert find_passwords(nobody) == VaultPasswords()

    def test_of_a_file_and_of_a_script(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "plain").write_text("geheim\n")
        script = tmp_path / "keyring-client.sh"
        script.write_text('#!/bin/sh\necho "of $2"\n')
        script.chmod(0o755)
        monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "plain"))
        monkeypatch.setenv("ANSIBLE_VAULT_IDENTITY_LIST", f"dev@{script}, prod@{script}")
        found = find_passwords(nobody)
        assert found.listed == (("dev", b"of dev"), ("prod", b"of prod"))
        assert found.of_file == (("default", b"geheim"),)
        assert "geheim" not in repr(found)

    @pytest.mark.parametrize(
        ("variable", "setting", "wanted", "asked"),
        [
            ("ANSIBLE_ASK_VAULT_PASS", "1", False, ["default"]),
            ("ANSIBLE_VAULT_IDENTITY_LIST", "dev@prompt", False, ["dev"]),
            ("ANSIBLE_ASK_VAULT_PASS", "0", True, ["default"]),
            ("ANSIBLE_VAULT_IDENTITY_LIST", "dev@prompt", True, ["dev", "default"]),
        ],
    )
    def test_what_is_to_be_asked_for_is_asked_for_once(
        self, variable: str, setting: str, wanted: bool, asked: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(variable, setting)
        questions: list[str] = []

        def answer(question: str, _asked_by: str) -> str:
            questions.append(question)
            return "typed"

        found = find_passwords(answer, wanted=wanted)
        assert [name for name, _ in found.listed] == asked
        assert questions == [f"Vault password ({name}): " for name in asked]

    @pytest.mark.parametrize(
        ("variable", "setting", "wanted", "asked_by"),
        [
            ("ANSIBLE_ASK_VAULT_PASS", "1", False, "ANSIBLE_ASK_VAULT_PASS"),
            ("ANSIBLE_ASK_VAULT_PASS", "1", True, ""),
            ("ANSIBLE_VAULT_IDENTITY_LIST", "dev@prompt", False, "ANSIBLE_VAULT_IDENTITY_LIST (dev@prompt)"),
        ],
    )
    def test_what_wants_it_to_be_asked_for_is_named(
        self, variable: str, setting: str, wanted: bool, asked_by: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(variable, setting)
        named: list[str] = []
        find_passwords(lambda _question, who: named.append(who) or "typed", wanted=wanted)
        assert named == [asked_by]

    def test_a_setting_of_ansible_cfg_is_named_with_its_file(self, tmp_path: Path) -> None:
        config = tmp_path / "ansible.cfg"
        config.write_text("[defaults]\nask_vault_pass = True\nvault_identity_list = prod@prompt\n")
        code = (
            "from launcher.inventory.vault import find_passwords\n"
            "find_passwords(lambda question, asked_by: print(asked_by) or 'x')"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "ANSIBLE_CONFIG": str(config)},
        )  # fmt: skip
        expected = [f"vault_identity_list in {config} (prod@prompt)", f"ask_vault_pass in {config}"]
        assert done.stdout.splitlines() == expected, done.stderr

    def test_a_file_that_is_not_there_counts_only_where_something_is_encrypted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "nowhere"))
        found = find_passwords(nobody)
        (tmp_path / "plain.yml").write_text(HOSTS)
        assert read(tmp_path / "plain.yml", passwords=found)
        (tmp_path / "hosts.yml").write_text(encrypted(HOSTS, "right"))
        assert str(tmp_path / "nowhere") in refusal(tmp_path / "hosts.yml", found)

    def test_a_password_file_may_be_encrypted_with_one_before_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Callable[[str, str], str] = lambda *_: "first"
    ) -> None:
        (tmp_path / "second").write_text(encrypted("inner", "first"))
        monkeypatch.setenv("ANSIBLE_VAULT_IDENTITY_LIST", f"a@prompt,b@{tmp_path / 'second'}")
        assert find_passwords(typed).listed == (("a", b"first"), ("b", b"inner"))

    @pytest.mark.parametrize("named", [True, False])
    def test_of_the_ansible_cfg_that_the_playbooks_have(self, tmp_path: Path, named: bool) -> None:
        """Not of one in the user's folder: ansible-playbook, which runs in the checkout, would not find that."""
        (tmp_path / "password").write_text("of the cfg\n")
        config = tmp_path / "ansible.cfg"
        config.write_text(f"[defaults]\nvault_identity_list = prod@{tmp_path / 'password'}\n")
        code = "from launcher.inventory.vault import find_passwords; print(find_passwords(input).all)"
        own = {"PYTHONPATH": str(ROOT)} | ({"ANSIBLE_CONFIG": str(config)} if named else {})
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env={**os.environ, **own},
        )  # fmt: skip
        assert done.stdout == ("(('prod', b'of the cfg'),)\n" if named else "()\n"), done.stderr
