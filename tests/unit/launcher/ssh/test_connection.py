"""One connection to a node: a real SSH server, in this process, with keys of its own."""

import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import paramiko
import pytest
from fabric import Connection as FabricConnection
from requests import ReadTimeout

from launcher.base.errors import ExitCode, RingmasterError
from launcher.inventory.hosts import Host
from launcher.inventory.ssh_options import SshOptions
from launcher.ssh import connection, pool
from launcher.ssh.connection import LostError, Remote, Trouble
from launcher.ssh.pool import connected, on_all, open_all, revived


class Sshd(paramiko.ServerInterface):
    """Lets one key in, and runs what it is told to in a shell, as sshd does."""

    def __init__(self, folder: Path, *, accepts: paramiko.PKey) -> None:
        self.key = new_key(folder)
        self.offered: list[paramiko.PKey] = []
        self._accepts = accepts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.transports: list[paramiko.Transport] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def stop(self) -> None:
        with suppress(OSError):  # stopped already
            self._listener.shutdown(socket.SHUT_RDWR)  # closing alone doesn't wake who waits for the next one
        self._listener.close()
        for transport in self.transports:
            transport.close()

    def _serve(self) -> None:
        while True:
            try:
                taken, _ = self._listener.accept()
            except OSError:  # stopped
                return
            transport = paramiko.Transport(taken)
            transport.add_server_key(self.key)
            transport.set_subsystem_handler("sftp", paramiko.SFTPServer)
            self.transports.append(transport)
            with suppress(paramiko.SSHException, EOFError):  # who doesn't like our key hangs up
                transport.start_server(server=self)

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.offered.append(key)
        fits = username == "ops" and key == self._accepts
        return paramiko.AUTH_SUCCESSFUL if fits else paramiko.AUTH_FAILED

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._run, args=(channel, command), daemon=True).start()
        return True

    def _run(self, channel: paramiko.Channel, command: bytes) -> None:
        with suppress(OSError, EOFError):
            if command == b"hang-up":
                channel.get_transport().close()
                return
            given = b"" if command == b"cat-nothing" else channel.makefile("rb").read()
            done = subprocess.run(["/bin/sh", "-c", command], input=given, capture_output=True, check=False)
            channel.sendall(done.stdout)
            channel.sendall_stderr(done.stderr)
            channel.send_exit_status(done.returncode)
            channel.close()


def new_key(folder: Path) -> paramiko.PKey:
    path = folder / f"key{len(list(folder.iterdir()))}"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return paramiko.Ed25519Key.from_private_key_file(str(path))


class Place:
    """An operator's files, and the machines they know."""

    def __init__(self, folder: Path) -> None:
        self.keys, self.pins = folder / "keys", folder / "known_hosts"
        self.keys.mkdir()
        self.mine = new_key(self.keys)
        self.my_file = self.keys / "key0"
        self.pins.touch()
        self.machines: list[Sshd] = []

    def machine(self) -> Sshd:
        self.machines.append(Sshd(self.keys, accepts=self.mine))
        return self.machines[-1]

    def pin(self, port: int, key: paramiko.PKey) -> None:
        with self.pins.open("a") as file:
            file.write(f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n")

    def host(self, port: int, name: str = "node1", user: str = "ops", key_file: str = "") -> Host:
        args = "-F /dev/null -o UserKnownHostsFile=/dev/null -o IdentitiesOnly=yes"
        reached = SshOptions(port=port, user=user, key_file=key_file or str(self.my_file), common_args=args)
        return Host(name=name, address="127.0.0.1", ssh=reached)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    for machine in made.machines:
        machine.stop()


@pytest.fixture
def node(place: Place) -> Iterator[Remote]:
    """A node that is known, and a connection to it."""
    machine = place.machine()
    place.pin(machine.port, machine.key)
    with connected([place.host(machine.port)], place.pins) as remotes:
        yield remotes["node1"]


WORDS = ["--", "a b", "$(touch /tmp/no)", "`id`", "'\"", ";", "&&", "|", "*", "\n", "ü", "", "\\"]


def test_words_arrive_as_they_are_and_what_it_reads_and_says_too(node: Remote) -> None:
    done = node.run(["sh", "-c", 'printf "%s|" "$@"; cat; echo why >&2; exit 7', "sh", *WORDS], stdin=[b"in", b"put"])
    assert done.text == "".join(f"{word}|" for word in WORDS) + "input"
    assert (done.code, done.why) == (7, "why")


def test_more_than_a_window_of_everything(node: Remote) -> None:
    big = b"0123456789abcdef" * (1 << 18)
    done = node.run(["sh", "-c", "cat; head -c 5000000 /dev/zero >&2"], stdin=big)
    assert (done.code, len(done.err), done.out == big) == (0, 5_000_000, True)


def test_a_program_that_reads_nothing_says_by_its_exit_code_why(node: Remote) -> None:
    assert node.run(["false"], stdin=b"x" * 10_000_000).code == 1
    assert node.run(["sh", "-c", "exit 3"]).why == "exit code 3"


def test_both_streams_are_handed_on(node: Remote) -> None:
    heard: list[bytes] = []
    assert node.stream(["sh", "-c", "echo out; echo err >&2"], on_output=heard.append) == 0
    assert sorted(b"".join(heard).splitlines()) == [b"err", b"out"]


def test_a_connection_that_breaks_is_lost(node: Remote) -> None:
    transport = node._connection.client.get_transport()
    with pytest.raises(LostError, match=r"^node1: the connection is lost") as raised:
        node.run(["hang-up"])
    assert raised.value.exit_code == ExitCode.CLUSTER
    transport.join(20)  # it wakes who waits for an answer, and only then says that it has ended
    assert not node.alive
    for ask in (lambda: node.run(["true"]), node.sftp):
        with pytest.raises(LostError):
            ask()


def test_files_and_commands_share_the_connection(node: Remote, place: Place) -> None:
    assert node.sftp() is node.sftp()
    assert len(place.machines[0].transports) == 1
    assert node.port == place.machines[0].port


def test_each_thread_asks_for_files_by_itself(node: Remote, place: Place) -> None:
    """Of two that share a client one loses its answers."""
    found: list[paramiko.SFTPClient] = []
    threads = [threading.Thread(target=lambda: found.append(node.sftp())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(client) for client in (*found, node.sftp())}) == 3
    assert len(place.machines[0].transports) == 1


class TestHowLong:
    """The limit counts from the last byte either way, by a clock of the test's own."""

    @pytest.fixture
    def pass_s(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
        now = [0.0]

        def monotonic() -> float:
            return now[0]

        def pass_s(seconds: float) -> None:
            now[0] += seconds
            threading.Event().wait(0.2)  # whoever listens sees how late it is

        monkeypatch.setattr(connection, "_TICK_S", 0.01)
        monkeypatch.setattr(connection, "time", SimpleNamespace(monotonic=monotonic))
        return pass_s

    def test_who_is_sent_much_has_time(self, node: Remote, pass_s: Callable[[float], None]) -> None:
        def pieces() -> Iterator[bytes]:
            for number in range(5):
                pass_s(50)
                yield b"%d" % number

        assert node.run(["cat"], stdin=pieces(), limit_s=60).text == "01234"

    def test_who_is_sent_nothing_and_says_nothing_is_lost(self, node: Remote, pass_s: Callable[[float], None]) -> None:
        over = threading.Event()

        def pieces() -> Iterator[bytes]:
            yield b"begun"
            pass_s(61)
            over.wait(20)

        try:
            with pytest.raises(LostError, match="node1"):
                node.run(["cat"], stdin=pieces(), limit_s=60)
        finally:
            over.set()
        assert node.alive, "others may still talk over it"

    def test_long_work_may_be_silent_for_ever(self, node: Remote, pass_s: Callable[[float], None]) -> None:
        def pieces() -> Iterator[bytes]:
            pass_s(1e6)
            yield b"at last"

        heard: list[bytes] = []
        assert node.stream(["cat"], stdin=pieces(), on_output=heard.append) == 0
        assert b"".join(heard) == b"at last"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(13, "Permission denied"), r"^can't be sent: \[Errno 13\] Permission denied$"),
        (RingmasterError("log: changes while it is read"), "^log: changes while it is read$"),
    ],
)
def test_what_can_not_be_read_here_is_no_fault_of_the_connection(node: Remote, error: Exception, said: str) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"begun"
        raise error

    with pytest.raises(RingmasterError, match=said) as raised:
        node.run(["cat"], stdin=pieces())
    assert not isinstance(raised.value, LostError)
    assert node.run(["echo", "back"]).text == "back\n"


def refused(place: Place, *hosts: Host) -> str:
    """What stands against the nodes, which nobody opened."""
    opened, failed = open_all(hosts, place.pins)
    assert opened == {}
    return "\n".join(f"{row.name} {row.state}: {row.why}" for row in failed.values())


def test_an_unknown_key_is_refused(place: Place) -> None:
    machine = place.machine()
    said = refused(place, place.host(machine.port))
    assert said == "node1 unknown key: its host key is not known; make provision shows it, asks, and pins it"
    assert machine.transports == [], "it was not even asked"


def test_another_machines_key_is_refused_and_both_fingerprints_are_named(place: Place) -> None:
    machine, other = place.machine(), place.machine()
    place.pin(machine.port, other.key)
    said = refused(place, place.host(machine.port))
    assert said.startswith("node1 CHANGED KEY: it shows ")
    assert f"it shows {machine.key.fingerprint}, pinned is {other.key.fingerprint}" in said
    assert not any(transport.is_authenticated() for transport in machine.transports), "nothing was told to it"


def test_a_key_of_another_kind_is_refused_too(place: Place) -> None:
    machine = place.machine()
    place.pin(machine.port, paramiko.ECDSAKey.generate())
    assert refused(place, place.host(machine.port)).startswith("node1 CHANGED KEY: ")


def test_who_is_not_let_in_is_told_whom_we_said_we_are(place: Place) -> None:
    machine = place.machine()
    place.pin(machine.port, machine.key)
    new_key(place.keys)
    wrong = str(sorted(place.keys.glob("*[0-9]"))[-1])
    for host in (place.host(machine.port, user="root"), place.host(machine.port, key_file=wrong)):
        assert refused(place, host).startswith(f"node1 denied: no key was accepted for user {host.ssh.user}; ")


def test_of_the_agents_keys_only_the_named_one_is_offered(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """IdentitiesOnly: the key is locked in its file, and open in the agent, which has others too."""
    machine, other = place.machine(), new_key(place.keys)
    place.pin(machine.port, machine.key)
    lock = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "a passphrase", "-f", str(place.my_file)]
    subprocess.run(lock, check=True, capture_output=True)
    assert refused(place, place.host(machine.port)).startswith("node1 denied: ")
    machine.offered.clear()
    monkeypatch.setattr(paramiko, "Agent", lambda: SimpleNamespace(get_keys=lambda: (other, place.mine)))
    with connected([place.host(machine.port)], place.pins) as remotes:
        assert remotes["node1"].run(["echo", "in"]).text == "in\n"
    assert set(machine.offered) == {place.mine}


@pytest.mark.parametrize("error", [OSError("no socket"), paramiko.SSHException("it speaks oddly")])
def test_an_agent_that_does_not_answer_is_none(place: Place, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    machine = place.machine()
    place.pin(machine.port, machine.key)

    def agent() -> Any:
        raise error

    monkeypatch.setattr(paramiko, "Agent", agent)
    with connected([place.host(machine.port)], place.pins) as remotes:
        assert remotes["node1"].alive


def test_a_machine_that_is_off(place: Place) -> None:
    machine = place.machine()
    place.pin(machine.port, machine.key)
    machine.stop()
    assert refused(place, place.host(machine.port)).startswith("node1 down: ")


def test_all_or_none_and_a_table_of_all(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    fine, unknown = place.machine(), place.machine()
    place.pin(fine.port, fine.key)
    hosts = [place.host(fine.port, "node1"), place.host(unknown.port, "node2")]
    expected = pytest.raises(RingmasterError, match=r"^node2: not reached \(see the table\)")
    with expected as raised, connected(hosts, place.pins):
        pytest.fail("there is nothing to do")
    assert raised.value.exit_code == ExitCode.NOT_STARTED
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in table] == [["node1", "127.0.0.1", "ok"], ["node2", "127.0.0.1", "unknown"]]
    for transport in fine.transports:
        transport.join(20)
        assert not transport.is_active(), "the one that was opened is closed"


def test_this_machine_itself_is_no_node_of_containers(place: Place) -> None:
    host = Host(name="here", address="127.0.0.1", ssh=SshOptions(over_ssh=False))
    with pytest.raises(RingmasterError, match="here: containers are started over SSH"):
        open_all([host], place.pins)


def test_the_policy_is_to_refuse_whatever_fabrics_own_is(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fabric accepts any key; what it was set to is looked at where the connection opens."""
    seen: list[Any] = []
    monkeypatch.setattr(FabricConnection, "open", lambda self: seen.append(self.client._policy) or 1 / 0)
    machine = place.machine()
    place.pin(machine.port, machine.key)
    refused(place, place.host(machine.port))
    assert isinstance(seen[0], paramiko.RejectPolicy)


def test_what_broke_is_opened_again_and_the_rest_is_kept(place: Place) -> None:
    machines = [place.machine() for _ in range(3)]
    for machine in machines:
        place.pin(machine.port, machine.key)
    hosts = [place.host(machine.port, f"host{number}") for number, machine in enumerate(machines)]
    with connected(hosts, place.pins) as opened:
        planned = {f"node{number}": each for number, each in enumerate(opened.values())}
        opened["host1"].close()
        opened["host2"].close()
        machines[2].stop()
        again = revived(planned, place.pins)
        assert list(again) == ["node0", "node1"]
        assert again["node0"] is planned["node0"]
        assert again["node1"].run(["echo", "back"]).text == "back\n"
        again["node1"].close()


def test_a_node_behind_a_proxy_command_is_reached_at_its_own_port(place: Place) -> None:
    machine = place.machine()
    place.pin(machine.port, machine.key)
    bridge = place.pins.with_name("bridge.py")
    bridge.write_text(BRIDGE)
    host = place.host(machine.port)
    args = shlex.join(("-o", f"ProxyCommand={sys.executable} {bridge} %h %p"))
    behind = replace(host, ssh=replace(host.ssh, common_args=f"{host.ssh.common_args} {args}"))
    with connected([behind], place.pins) as remotes:
        assert remotes["node1"].run(["echo", "there"]).text == "there\n"


BRIDGE = """
import os, socket, sys, threading
end = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def there():
    while data := os.read(0, 65536):
        end.sendall(data)
threading.Thread(target=there, daemon=True).start()
while data := end.recv(65536):
    os.write(1, data)
"""


class TestOnAll:
    class Node:
        def __init__(self, name: str) -> None:
            self.name = name
            self.closed = threading.Event()

        def close(self) -> None:
            self.closed.set()

    @pytest.fixture
    def nodes(self) -> dict[str, Any]:
        return {name: self.Node(name) for name in ("a", "b", "c")}

    def test_all_at_once_and_in_order(self, nodes: dict[str, Any]) -> None:
        together = threading.Barrier(3, timeout=20)

        def work(node: Any) -> str:
            together.wait()  # or it would never go on
            return f"{node.name}!"

        assert list(on_all(nodes, work).items()) == [("a", "a!"), ("b", "b!"), ("c", "c!")]
        assert on_all({}, work) == {}

    def test_every_error_is_told_and_the_first_ones_kind_holds(self, nodes: dict[str, Any]) -> None:
        done: list[str] = []

        def work(node: Any) -> None:
            if node.name == "b":
                raise LostError("b", "reset")
            if node.name == "c":
                raise RingmasterError("c: no", exit_code=ExitCode.USAGE)
            done.append(node.name)

        with pytest.raises(LostError) as raised:
            on_all(nodes, work)
        assert str(raised.value) == "b: the connection is lost (reset); is it up?\nc: no"
        assert (raised.value.exit_code, done) == (ExitCode.CLUSTER, ["a"])

    @pytest.mark.parametrize("error", [ConnectionResetError("reset"), EOFError(), ReadTimeout("no answer")])
    def test_what_a_broken_connection_raises_is_a_lost_node(self, nodes: dict[str, Any], error: Exception) -> None:
        def work(node: Any) -> None:
            if node.name == "b":
                raise error

        assert isinstance(error, Trouble)
        with pytest.raises(LostError, match=r"^b: the connection is lost \(") as raised:
            on_all(nodes, work)
        assert raised.value.exit_code == ExitCode.CLUSTER

    def test_a_mistake_of_ours_goes_before_what_nodes_say(self, nodes: dict[str, Any]) -> None:
        def work(node: Any) -> None:
            raise RingmasterError("a: no") if node.name == "a" else ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            on_all(nodes, work)

    def test_who_interrupts_waits_for_nobody(self, nodes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupt(_: float) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(pool, "time", SimpleNamespace(sleep=interrupt))
        with pytest.raises(KeyboardInterrupt):
            on_all(nodes, lambda node: node.closed.wait(20))
        assert all(node.closed.is_set() for node in nodes.values()), "which ends what they wait for"
