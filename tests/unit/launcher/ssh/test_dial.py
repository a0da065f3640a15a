"""OpenSSH decides how a node is reached and who is let in: its own configuration counts, whatever is in it."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import paramiko
import pytest
from paramiko.packet import Packetizer

from launcher.base.errors import RingmasterError
from launcher.base.paths import ROOT
from launcher.inventory.hosts import Host
from launcher.inventory.ssh_options import SshOptions
from launcher.ssh import dial, master, mux
from launcher.ssh.pool import connected, open_all
from launcher.ssh.refusals import RefusedError, State
from tests.support.cluster.agent import agent_with
from tests.support.cluster.live_engine import until
from tests.support.cluster.sshd import BRIDGE, Place, Sshd


@pytest.fixture
def machine(place: Place) -> Sshd:
    machine = place.machine()
    place.pin(machine.port, machine.key)
    return machine


def configured(place: Place, machine: Sshd, text: str, *more: str) -> Host:
    """A host of which only a name is in the inventory, and the rest in a configuration file of OpenSSH."""
    config = place.keys.with_name("config")
    config.write_text(
        f"Host *\n  HostName 127.0.0.1\n  Port {machine.port}\n  User ops\n  UserKnownHostsFile /dev/null\n{text}"
    )
    return Host(name="node1", address="gpu-1", ssh=SshOptions(common_args=shlex.join(("-F", str(config), *more))))


def answers(place: Place, host: Host) -> None:
    with connected([host], place.pins) as remotes:
        assert remotes["node1"].run(["echo", "there"]).text == "there\n"


def test_an_agent_that_only_the_configuration_names(place: Place, machine: Sshd) -> None:
    with agent_with(place.my_file) as socket:
        place.my_file.rename(place.my_file.with_name("elsewhere"))
        answers(place, configured(place, machine, f"  IdentityAgent {socket}\n  IdentityFile none\n"))


def test_a_connection_that_nobody_uses_yet_stays(place: Place, machine: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Transport of paramiko's gives the other end 15 s for its first packet."""

    class AtOnce(threading.Timer):
        def __init__(self, seconds: float, function: Any) -> None:
            of_ours = isinstance(getattr(function, "__self__", None), mux._MuxPacketizer)
            super().__init__(0 if of_ours else seconds, function)

    looked: list[Packetizer] = []
    timed_out = Packetizer.handshake_timed_out
    monkeypatch.setattr(paramiko.packet.threading, "Timer", AtOnce)
    monkeypatch.setattr(Packetizer, "handshake_timed_out", lambda each: looked.append(each) or timed_out(each))
    with connected([configured(place, machine, f"  IdentityFile {place.my_file}\n")], place.pins) as remotes:
        until(lambda: len(looked) > 5 or not remotes["node1"].alive)
        assert remotes["node1"].run(["echo", "there"]).text == "there\n"


def test_a_key_file_named_after_the_address(place: Place, machine: Sshd) -> None:
    place.my_file.rename(place.my_file.with_name("key-of-127.0.0.1"))
    answers(place, configured(place, machine, f"  IdentityFile {place.keys}/key-of-%h\n"))


def test_a_proxy_command_in_a_shells_words(place: Place, machine: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `~`, a redirection, and `%n`, the name as it was given."""
    home = place.keys.with_name("home")
    home.mkdir()
    (home / "bridge.py").write_text(BRIDGE)
    monkeypatch.setenv("HOME", str(home))
    proxy = f"{sys.executable} ~/bridge.py %h %p %n 2>~/said"
    answers(place, configured(place, machine, f"  IdentityFile {place.my_file}\n  ProxyCommand {proxy}\n"))
    assert (home / "said").read_text() == "gpu-1\n"


def test_what_the_configuration_says_of_terminals_and_shared_connections_is_no_harm(
    place: Place, machine: Sshd
) -> None:
    text = f"""  IdentityFile {place.my_file}
  RequestTTY force
  RemoteCommand tmux attach
  ControlMaster auto
  ControlPath {place.keys}/shared-%C
  ControlPersist 1h
  SessionType none
  ForkAfterAuthentication yes
  StdinNull yes
  ForwardAgent yes
  LocalForward 127.0.0.1:1 127.0.0.1:1
  PermitLocalCommand yes
  LocalCommand touch {place.keys}/touched
"""
    answers(place, configured(place, machine, text, "-o", "LogLevel=ERROR"))
    assert not (place.keys / "touched").exists()
    assert not list(place.keys.glob("shared-*")), "nobody else uses this connection"


def test_flags_that_users_give_to_ansibles_ssh_are_no_harm(place: Place, machine: Sshd) -> None:
    host = place.host(machine.port)
    flags = f"-C -M -q -S {place.keys}/shared -E {place.keys}/log -fn -A -X -tt"
    flagged = replace(host, ssh=replace(host.ssh, args=flags))
    answers(place, flagged)
    assert not {"shared", "log"} & {each.name for each in place.keys.iterdir()}
    _, failed = open_all([replace(flagged, ssh=replace(flagged.ssh, user="nobody"))], place.pins)
    assert failed["node1"].why.startswith("no key was accepted for user nobody")


def login_shell(place: Place, start_up: str) -> str:
    """A login shell with this start-up file."""
    shell = place.keys.with_name("shell")
    shell.write_text(f'#!/bin/sh\n{start_up}\nexec /bin/sh "$@"\n')
    shell.chmod(0o755)
    return str(shell)


def test_a_login_shell_may_talk_to_people(place: Place, machine: Sshd) -> None:
    machine.shell = login_shell(place, "echo Beware >&2; test -t 1 && echo Welcome")
    with connected([place.host(machine.port)], place.pins) as remotes:
        assert remotes["node1"].run(["echo", "there"]).out == b"there\n"
        assert remotes["node1"].port == machine.port, "as the node sees it"


@pytest.mark.parametrize(
    ("start_up", "words"), [("echo 'Welcome!'; echo on line 2", "Welcome!"), ("printf 'no end'", "no end")]
)
def test_one_that_talks_to_programs_is_refused(place: Place, machine: Sshd, start_up: str, words: str) -> None:
    """It would stand before the output of every program, and SFTP doesn't work behind it at all."""
    machine.shell = login_shell(place, start_up)
    with pytest.raises(RefusedError) as caught:
        dial.dial(place.host(machine.port), place.pins)
    refusal = caught.value.refusal
    assert refusal.state is State.DENIED
    assert refusal.reason.startswith(f'its login shell prints "{words}" before every program; make its start-up files')
    until(lambda: not machine.transports[-1].is_active())


def test_of_a_long_greeting_the_beginning_is_shown(place: Place, machine: Sshd) -> None:
    machine.shell = login_shell(place, "seq -s ' ' 100000")
    _, failed = open_all([place.host(machine.port)], place.pins)
    assert len(failed["node1"].why) < 200


@pytest.mark.parametrize("shell", [name for name in ("bash", "tcsh", "bsd-csh", "fish") if shutil.which(name)])
def test_any_login_shell_will_do(place: Place, machine: Sshd, shell: str) -> None:
    machine.shell = str(shutil.which(shell))
    words = ["a!b", "!!", "it's", "\\", "a\\\\b", "$HOME", "`id`", "~", "*", "a\nb", "", "ü"]
    with connected([place.host(machine.port)], place.pins) as remotes:
        done = remotes["node1"].run(["printf", "%s|", *words])
    assert done.text == "".join(f"{word}|" for word in words)


def test_an_account_that_may_run_nothing(place: Place, machine: Sshd) -> None:
    machine.shell = "/bin/false"
    _, failed = open_all([place.host(machine.port)], place.pins)
    assert failed["node1"].why.startswith("logged in, but can't run a command: ")


@pytest.mark.parametrize("wrong", ["NoSuchOption=1", "Port=none"])
def test_options_that_ssh_can_not_take_are_said(place: Place, machine: Sshd, wrong: str) -> None:
    host = place.host(machine.port)
    common = f"-o {wrong} {host.ssh.common_args}"
    _, failed = open_all([replace(host, ssh=replace(host.ssh, common_args=common, port=None))], place.pins)
    assert failed["node1"].why.startswith("ssh refuses its options: command-line")
    assert failed["node1"].why.endswith("; fix ansible_ssh_common_args")


def test_a_socket_has_a_short_path_and_is_gone_once_it_was_used(
    place: Place, machine: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = place.keys / ("d" * 90)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    folders: list[Path] = []
    make = dial._private_folder
    monkeypatch.setattr(dial, "_private_folder", lambda: folders.append(make()) or folders[-1])
    with connected([place.host(machine.port)], place.pins) as remotes:
        assert remotes["node1"].alive
        assert [folder.exists() for folder in folders] == [False]


def test_more_sessions_than_the_node_allows_are_explained(place: Place, machine: Sshd) -> None:
    """The first is our own; sshd's MaxSessions is 10 where nobody changed it."""
    machine.sessions = 2
    with connected([place.host(machine.port)], place.pins) as remotes:
        remotes["node1"].sftp()
        with pytest.raises(RingmasterError, match=r"^node1: its sshd opens no further session .* MaxSessions there"):
            remotes["node1"].run(["true"])


def test_a_key_that_was_revoked_is_refused(place: Place, machine: Sshd) -> None:
    with place.pins.open("a") as file:
        file.write(f"@revoked * {machine.key.get_name()} {machine.key.get_base64()}\n")
    _, failed = open_all([place.host(machine.port)], place.pins)
    assert (failed["node1"].state, failed["node1"].why) == (State.CHANGED, "its host key is marked as revoked")
    assert machine.offered == []


def test_an_unknown_jump_host_is_not_taken_for_the_node(place: Place, machine: Sshd) -> None:
    """The node's own key is known: nothing may say that it has changed."""
    jump = place.machine()
    config = place.keys.with_name("config")
    text = f"  ProxyJump ops@127.0.0.1:{jump.port}\n"
    host = configured(place, machine, "")
    config.write_text(f"Host gpu-*\n{text}{config.read_text()}")
    _, failed = open_all([host], place.pins)
    assert failed["node1"].state is State.UNKNOWN
    assert "make provision shows it" not in failed["node1"].why
    assert jump.offered == machine.offered == []


KILLED = """
import os, signal, sys
from pathlib import Path
from launcher.inventory.hosts import Host
from launcher.inventory.ssh_options import SshOptions
from launcher.ssh.pool import open_all
options = SshOptions(port=int(sys.argv[1]), user="ops", key_file=sys.argv[2], common_args=sys.argv[3])
opened, failed = open_all([Host(name="node1", address="127.0.0.1", ssh=options)], Path(sys.argv[4]))
print(opened["node1"]._master._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_is_left_of_a_launcher_that_is_killed(place: Place, machine: Sshd) -> None:
    host = place.host(machine.port)
    words = [str(machine.port), host.ssh.key_file, host.ssh.common_args, str(place.pins)]
    done = subprocess.run([sys.executable, "-c", KILLED, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    until(lambda: not Path(f"/proc/{int(done.stdout)}").exists())
    transport = machine.transports[-1]
    until(lambda: not transport.is_active())


def test_ctrl_c_is_meant_for_us_alone(place: Place, machine: Sshd) -> None:
    with connected([place.host(machine.port)], place.pins) as remotes:
        process = remotes["node1"]._master._process
        assert os.getsid(process.pid) == process.pid, "the terminal's signals don't reach it"


def test_who_waits_no_longer_leaves_nothing_behind(place: Place) -> None:
    """A node that takes the connection and says nothing."""
    machine = Sshd(place.keys, accepts=place.mine, dumb=True)
    place.machines.append(machine)
    over = threading.Event()
    threads = threading.active_count()

    def begin() -> None:
        with pytest.raises(RefusedError):
            dial.dial(place.host(machine.port), place.pins, over)

    begun = threading.Thread(target=begin, daemon=True)
    begun.start()
    machine.taken.wait(20)
    over.set()
    begun.join(20)
    assert threading.active_count() <= threads


def test_what_paramiko_calls_its_own_is_where_we_use_it() -> None:
    """These are not public. A paramiko that has renamed one must fail here, in plain words."""
    for name in ("_check_banner", "_send_kex_init", "_expect_packet", "open_channel", "run"):
        assert callable(getattr(paramiko.Transport, name, None)), (
            f"paramiko.Transport.{name} is gone: see {mux.__file__}"
        )
        assert name == "run" or name in vars(mux._MuxTransport)
    for name in ("write_all", "send_message", "read_message", "read_all"):
        assert callable(getattr(paramiko.packet.Packetizer, name, None)), f"Packetizer.{name} is gone"
    transport = paramiko.Transport(_Unused())
    for name in ("initial_kex_done", "authenticated", "clear_to_send", "active"):
        assert hasattr(transport, name), f"paramiko.Transport.{name} is gone: see {mux.__file__}"


class _Unused:
    def settimeout(self, _: float) -> None:
        pass

    def close(self) -> None:
        pass


def test_the_ssh_of_this_machine_is_new_enough_to_be_told_everything() -> None:
    assert master._version() >= (7, 4)
