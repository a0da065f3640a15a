"""Connections to all nodes: who is let in, who is refused and why, and work on all of them."""

import shlex
import subprocess
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import paramiko
import pytest
from requests import ReadTimeout

from launcher.base.errors import ExitCode, RingmasterError
from launcher.inventory.hosts import Host
from launcher.inventory.ssh_options import SshOptions
from launcher.ssh import pool
from launcher.ssh.connection import LostError, Trouble
from launcher.ssh.pool import connected, on_all, open_all, revived
from tests.support.cluster.agent import agent_with
from tests.support.cluster.sshd import BRIDGE, Place, new_key


def refused(place: Place, *hosts: Host) -> str:
    """What stands against the nodes, which nobody opened."""
    opened, failed = open_all(hosts, place.pins)
    assert opened == {}
    return "\n".join(f"{row.name} {row.state}: {row.why}" for row in failed.values())


def test_an_unknown_key_is_refused(place: Place) -> None:
    machine = place.machine()
    said = refused(place, place.host(machine.port))
    assert said == "node1 unknown key: its host key is not known; make provision shows it, asks, and pins it"
    assert machine.offered == [], "nothing was told to it"


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
    assert machine.offered == [], "nothing was told to it"


def test_who_is_not_let_in_is_told_whom_we_said_we_are(place: Place) -> None:
    machine = place.machine()
    place.pin(machine.port, machine.key)
    new_key(place.keys)
    wrong = str(sorted(place.keys.glob("*[0-9]"))[-1])
    for host in (place.host(machine.port, user="root"), place.host(machine.port, key_file=wrong)):
        assert refused(place, host).startswith(f"node1 denied: no key was accepted for user {host.ssh.user}; ")


def test_of_the_agents_keys_only_the_named_one_is_offered(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """IdentitiesOnly: the key is locked in its file, and open in the agent, which has others too."""
    machine = place.machine()
    place.pin(machine.port, machine.key)
    new_key(place.keys)
    other = sorted(place.keys.glob("*[0-9]"))[-1]
    with agent_with(other, place.my_file) as socket:
        lock = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "a passphrase", "-f", str(place.my_file)]
        subprocess.run(lock, check=True, capture_output=True)
        assert refused(place, place.host(machine.port)).startswith("node1 denied: ")
        machine.offered.clear()
        monkeypatch.setenv("SSH_AUTH_SOCK", socket)
        with connected([place.host(machine.port)], place.pins) as remotes:
            assert remotes["node1"].run(["echo", "in"]).text == "in\n"
    assert set(machine.offered) == {place.mine}


def test_an_agent_that_does_not_answer_is_none(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = place.machine()
    place.pin(machine.port, machine.key)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(place.keys / "none"))
    with connected([place.host(machine.port)], place.pins) as remotes:
        assert remotes["node1"].alive


def test_a_machine_that_is_off(place: Place) -> None:
    machine = place.machine()
    place.pin(machine.port, machine.key)
    machine.stop()
    assert refused(place, place.host(machine.port)).startswith("node1 down: connection refused; is sshd running")


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
