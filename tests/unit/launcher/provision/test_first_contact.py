"""First contact, with stand-ins for ssh and ssh-keyscan that answer by the host's name."""

import base64
from pathlib import Path

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.inventory.hosts import Host
from launcher.inventory.ssh_options import SshOptions
from launcher.provision import first_contact
from launcher.ssh.refusals import State

BLOB = base64.b64encode(b"the key of a machine").decode()
SSH = """#!/bin/sh
# Known hosts are those in the pins; the name says the rest.
pins=@PINS@
for word; do last=$before; before=$word; done
test "$1" = -G && last=$before
case "$*" in *"$pins"*) ;; *) echo "our options are missing" >&2; exit 255 ;; esac
if [ "$1" = -G ]; then
  echo "hostname $last"; echo "port 22"; echo "userknownhostsfile /none"; echo "globalknownhostsfile /none $pins"
  case $last in jumped*) echo "proxyjump bastion" ;; fips*) echo "hostkeyalgorithms ssh-rsa" ;; esac
  exit 0
fi
case $last in
  silent*) echo "ssh: connect to host $last port 22: Connection timed out" >&2; exit 255 ;;
  denied*) echo "ops@$last: Permission denied (publickey)." >&2; exit 255 ;;
  changed*) echo "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @ SHA256:new." >&2; exit 255 ;;
esac
grep -q "^$last " "$pins" 2>/dev/null && exit 0
echo "No ED25519 host key is known for $last and you have requested strict checking." >&2; exit 255
"""
SCAN = f"""#!/bin/sh
for last; do :; done
case $last in mute*) ;; *) echo "$last ssh-ed25519 {BLOB}" ;; esac
"""


@pytest.fixture
def pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder, pins = tmp_path / "bin", tmp_path / "inventory" / "known_hosts"
    folder.mkdir()
    pins.parent.mkdir()
    for name, text in (("ssh", SSH.replace("@PINS@", str(pins))), ("ssh-keyscan", SCAN)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    return pins


def hosts(*names: str) -> list[Host]:
    return [Host(name=f"n-{name}", address=name) for name in names]


def test_known_nodes_are_not_asked_about(pins: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pins.write_text(f"a ssh-ed25519 {BLOB}\nb ssh-ed25519 {BLOB}\n")
    answers = first_contact.meet([*hosts("a", "b"), _local()], pins, trust=False)
    assert {answer.state for answer in answers.values()} == {State.OK}
    assert capsys.readouterr().out == ""


def test_new_keys_are_shown_and_pinned_when_trusted(pins: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = first_contact.meet(hosts("a", "silent", "b"), pins, trust=True)
    assert [answer.state for answer in answers.values()] == [State.OK, State.DOWN, State.OK]
    assert pins.read_text() == f"a ssh-ed25519 {BLOB}\nb ssh-ed25519 {BLOB}\n"
    assert capsys.readouterr().out.count("SHA256:") == 2


def test_nobody_to_ask_is_a_refusal(pins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: SIM115, PTH123
    assert "TRUST=1" in refusal(hosts("a"), pins)
    assert not pins.exists()


@pytest.mark.parametrize(("answer", "pinned"), [("y", True), ("Yes", True), ("n", False), ("", False)])
def test_asked_once(pins: Path, monkeypatch: pytest.MonkeyPatch, answer: str, pinned: bool) -> None:
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or answer)
    if pinned:
        first_contact.meet(hosts("a", "b"), pins, trust=False)
    else:
        assert "not accepted" in refusal(hosts("a", "b"), pins)
    assert (len(asked), pins.exists()) == (1, pinned)


def test_a_changed_key_is_never_accepted(pins: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pins.write_text(f"changed ssh-ed25519 {BLOB}\n")
    before = pins.read_text()
    assert "n-changed: fix this first" in refusal(hosts("a", "changed"), pins, trust=True)
    out = capsys.readouterr().out
    for said in ("SHA256:new", f"{pins}:1", f"ssh-keygen -f {pins} -R changed", "installed anew", "n-a"):
        assert said in out
    assert before in pins.read_text()


def test_a_key_of_another_kind_is_a_changed_key(pins: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pins.write_text(f"x,other ssh-rsa {BLOB}\n")
    assert "n-other" in refusal(hosts("other"), pins, trust=True)
    assert "CHANGED KEY" in capsys.readouterr().out


def test_a_pinned_kind_that_ssh_does_not_take_here_is_no_changed_key(
    pins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pins.write_text(f"x,fips ssh-ed25519 {BLOB}\n")
    assert "n-fips" in refusal(hosts("fips"), pins, trust=True)
    said = capsys.readouterr().out
    assert "CHANGED KEY" not in said and "someone stands" not in said
    assert (
        f"only its ed25519 key is pinned, and ssh takes none here (HostKeyAlgorithms, FIPS): ssh-keygen -f {pins}"
        in said
    )


def test_behind_a_jump_host_the_user_pins_by_hand(pins: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "n-jumped" in refusal(hosts("jumped"), pins, trust=True)
    assert f'UserKnownHostsFile="{pins}"\' -o HashKnownHosts=no' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("a", "denied"), "n-denied: fix this"),
        (("silent", "silent2"), "no node answers"),
        (("mute",), "no node answers"),
    ],
)
def test_refusals_come_with_a_table_of_all(
    pins: Path, capsys: pytest.CaptureFixture[str], names: tuple[str, ...], message: str
) -> None:
    assert message in refusal(hosts(*names), pins, trust=True)
    out = capsys.readouterr().out
    assert all(f"n-{name}" in out for name in names)


def test_hidden_pins_are_an_error_of_the_inventory(pins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(name="a", address="a", ssh=SshOptions(extra_args=f"-o X={pins}.other"))
    ssh = Path(pins.parent.parent / "bin" / "ssh")
    ssh.write_text(ssh.read_text().replace("/none $pins", "/none"))
    with pytest.raises(RingmasterError, match="ansible_ssh_extra_args") as raised:
        first_contact.meet([host], pins, trust=True)
    assert raised.value.exit_code == ExitCode.USAGE


def refusal(chosen: list[Host], pins: Path, *, trust: bool = False) -> str:
    with pytest.raises(RingmasterError) as raised:
        first_contact.meet(chosen, pins, trust=trust)
    assert raised.value.exit_code == ExitCode.NOT_STARTED
    return str(raised.value)


def _local() -> Host:
    return Host(name="here", address="127.0.0.1", ssh=SshOptions(over_ssh=False))
