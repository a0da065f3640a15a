"""`make provision`, `verify`, `reset`: what is refused, how Ansible is called, and the exit codes."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.base import node_table
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.node_table import Row
from launcher.base.paths import ON_NODE, ROOT
from launcher.commands import provision
from launcher.commands.provision import Options, Verb
from launcher.inventory.hosts import Host
from launcher.inventory.passwords import Passwords
from launcher.provision import playbook
from launcher.provision.playbook import Ended
from launcher.ssh import known_hosts
from launcher.ssh.reachability import Answer
from launcher.ssh.refusals import State

_NODES = {"a": {"state": "ok", "changed": 0, "why": ""}, "b": {"state": "changed", "changed": 3, "why": ""}}
FINE = json.dumps({"refused": False, "nodes": _NODES})


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Replace the first contact and Ansible with stand-ins; yield their arguments and their answers."""
    seen: dict[str, Any] = {"answers": {}, "ended": Ended(code=0, signal=None, began=True, result=FINE)}

    def meet(hosts: list[Host], pins: Path, *, trust: bool) -> dict[str, Answer]:
        seen.update(pins=pins, trust=trust)
        return {host.name: seen["answers"].get(host.name, Answer(state=State.OK)) for host in hosts}

    def run(command: list[str], environment: dict[str, str], passwords: Passwords) -> Ended:
        seen.update(command=command[1:], environment=environment, passwords=passwords)
        return seen["ended"]

    monkeypatch.setattr(provision, "meet", meet)
    monkeypatch.setattr(playbook, "run", run)
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}
    yield seen
    for signum, handler in before.items():
        signal.signal(signum, handler)


@pytest.fixture
def hosts(tmp_path: Path) -> str:
    path = tmp_path / "hosts.yml"
    path.write_text("nodes: {hosts: {a: {ansible_host: 10.0.0.1}, b: {ansible_host: 10.0.0.2}}}\n")
    return str(path)


def test_the_command(called: dict[str, Any], hosts: str) -> None:
    options = Options(
        inventory=hosts, limit="a", tags="firewall", check="1", trust="1", keep_packages="1", nccl_debug="INFO"
    )
    assert provision.run(Verb.RESET, options) == ExitCode.SUCCEEDED
    extra = json.dumps({"reset_keep_packages": True, "comm_env_nccl_debug": "INFO"})
    assert called["command"] == [
        *("-i", hosts, "--check", "--diff", "--tags=firewall", "-e", extra, "--limit=a"),
        str(ROOT / "playbooks" / "reset.yml"),
    ]
    assert called["trust"] and called["pins"] == Path(hosts).with_name("known_hosts")


def test_the_environment_is_strict() -> None:
    made = provision.environment({"ANSIBLE_SSH_EXTRA_ARGS": "-v", "X": "1"}, Path("/a b/known_hosts"), silent=True)
    assert made["ANSIBLE_DUPLICATE_YAML_DICT_KEY"] == "error" and made["ANSIBLE_HOST_KEY_CHECKING"] == "1"
    assert made["ANSIBLE_SSH_EXTRA_ARGS"] == f"{known_hosts.pinning_options(Path('/a b/known_hosts'))} -v"
    assert made["ANSIBLE_STDOUT_CALLBACK"] == "ringmaster_silent" and made["X"] == "1"
    assert "ANSIBLE_STDOUT_CALLBACK" not in provision.environment({}, Path("/k"), silent=False)


def test_a_node_that_is_down_is_left_out_and_shown(
    called: dict[str, Any], hosts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    called["answers"] = {"b": Answer(state=State.DOWN, reason="timed out")}
    assert provision.run(Verb.PROVISION, Options(inventory=hosts)) == ExitCode.PARTLY
    assert "--limit=a" in called["command"]
    assert capsys.readouterr().out.splitlines() == ["  a  10.0.0.1  ok", "  b  10.0.0.2  down  timed out"]
    assert provision.run(Verb.VERIFY, Options(inventory=hosts)) == ExitCode.NOT_STARTED


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"check": "yes"}, "CHECK=yes: must be 1 or 0"),
        ({"trust": "2"}, "TRUST=2"),
        ({"nccl_debug": "{{ x }}"}, "NCCL_DEBUG={{ x }}: must be one of"),
        ({"tags": "firewall,firewal"}, "there is no role 'firewal'; there are comm_env, "),
        ({"ask": "root"}, "ASK=root: must be of sudo, ssh, vault"),
        ({"ask": "sudo"}, "ASK=sudo: there is no terminal to ask on; ansible_become_password in a file that Ansible"),
        ({"limit": "c"}, "LIMIT names 'c', which is not there; known: a, b"),
        (
            {"inventory": str(ROOT / "inventory" / "local.yml")},
            "copy inventory/hosts.example.yml to inventory/hosts.yml",
        ),
    ],
)
def test_wrong_usage_touches_nothing(called: dict[str, Any], hosts: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(RingmasterError) as raised:
        provision.run(Verb.PROVISION, Options(**{"inventory": hosts, **options}))
    assert message in str(raised.value) and raised.value.exit_code == ExitCode.USAGE
    assert "command" not in called and "pins" not in called


@pytest.mark.parametrize(
    ("signum", "began", "code", "said"),
    [(2, True, 130, "run it again to go on"), (15, True, 143, "run it again"), (2, False, 130, "nothing was changed")],
)
def test_stopped(
    called: dict[str, Any], hosts: str, capsys: pytest.CaptureFixture[str],
    signum: int, began: bool, code: int, said: str,
) -> None:  # fmt: skip
    called["ended"] = Ended(code=99, signal=signum, began=began, result="")
    assert provision.run(Verb.PROVISION, Options(inventory=hosts)) == code
    assert said in capsys.readouterr().out


def row(state: str) -> Row:
    return Row(name="n", address="x", state=state)


@pytest.mark.parametrize(
    ("verb", "states", "code", "began", "refused", "expected"),
    [
        (Verb.PROVISION, ["ok", "changed 3"], 0, True, False, 0),
        (Verb.PROVISION, ["ok", "failed"], 2, True, False, 5),
        (Verb.PROVISION, ["failed", "failed"], 2, True, False, 5),
        (Verb.PROVISION, ["ok", "unreachable"], 4, True, False, 5),
        (Verb.PROVISION, ["down", "unreachable"], 4, True, False, 3),
        (Verb.PROVISION, ["ok", "refused"], 2, True, True, 3),
        (Verb.PROVISION, ["not done"], 4, False, False, 3),
        (Verb.PROVISION, ["not done"], 250, True, False, 5),
        (Verb.RESET, ["ok", "failed"], 2, True, False, 5),
        (Verb.VERIFY, ["ok", "failed"], 2, True, False, 3),
        (Verb.VERIFY, ["ok", "ok"], 0, True, False, 0),
        (Verb.VERIFY, ["ok", "down"], 0, True, False, 3),
    ],
)
def test_the_exit_code(
    verb: Verb, states: list[str], code: int, began: bool, refused: bool, expected: int
) -> None:  # fmt: skip
    ended = Ended(code=code, signal=None, began=began, result="")
    assert provision.verdict(verb, [row(state) for state in states], ended, refused=refused) == expected


def test_the_table_is_aligned() -> None:
    rows = [Row(name="a", address="10.0.0.10", state="ok"), Row(name="bcd", address="x", state="down", why="timed out")]
    assert node_table.lines(rows) == ["  a    10.0.0.10  ok", "  bcd  x          down  timed out"]
    assert "\033[31mdown\033[0m" in node_table.lines(rows, coloured=True)[1]


@pytest.mark.parametrize("lost", ["probe.py", "addresses.py"])
@pytest.mark.parametrize("text", ["../../../../launcher/on_node/", None])
def test_a_copy_without_the_link_is_refused_in_a_sentence(
    called: dict[str, Any], hosts: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, lost: str
) -> None:
    monkeypatch.setattr(provision, "ROOT", tmp_path)
    core = tmp_path / "playbooks/module_utils/ringmaster/core"
    core.mkdir(parents=True)
    for name in ("probe.py", "addresses.py"):
        (core / name).symlink_to(ON_NODE / name)
    (core / lost).unlink()
    if text is not None:
        (core / lost).write_text(text + lost)
    with pytest.raises(RingmasterError, match=rf"{lost} is a symbolic link in git") as raised:
        provision.run(Verb.RESET, Options(inventory=hosts))
    assert raised.value.exit_code == ExitCode.NOT_STARTED and "command" not in called
