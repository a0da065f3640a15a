"""Which interface is the cluster's, and what the node's own name means on it."""

import subprocess
import threading
from typing import Any

import pytest
from ansible.module_utils.ringmaster.names import look as names
from ansible.module_utils.ringmaster.names.masked_lines import with_masked, without_masked
from ansible.module_utils.ringmaster.system import network

from tests.support.probe_answers import interface

LO = {**interface("lo", "127.0.0.1/8", mtu=65536), "virtual": True}
DOCKER = {**interface("docker0", "172.17.0.1/16"), "virtual": True}
ETH0 = {**interface("eth0", "10.0.0.1/24", "10.0.0.101/24", "fd00::1/64"), "virtual": False}
ETH1 = {**interface("eth1", "10.1.0.1/24", mtu=9000), "virtual": False}
ALL = [LO, DOCKER, ETH0, ETH1]


def via(interface: str, source: str = "") -> dict[str, str]:
    return {"interface": interface, "source": source}


def test_the_most_routes_win() -> None:
    routes = {"a": via("eth0", "10.0.0.1"), "b": via("eth1", "10.1.0.1"), "c": via("eth1", "10.1.0.1")}
    chosen = network.choose(ALL, routes)
    assert [chosen[one] for one in ("interface", "address", "mtu", "problem")] == ["eth1", "10.1.0.1", 9000, None]


def test_the_address_that_the_kernel_sends_from_wins() -> None:
    """It is the second of its interface: Gloo finds it by the host name, NCCL doesn't."""
    chosen = network.choose(ALL, {"a": via("eth0", "10.0.0.101")})
    assert (chosen["address"], chosen["gloo"]) == ("10.0.0.101", "")
    assert "NCCL would take 10.0.0.1," in chosen["nccl_problem"]
    assert network.choose(ALL, {"a": via("eth0", "10.0.0.101")}, "eth0")["address"] == "10.0.0.101"
    assert network.choose(ALL, {"a": via("eth1", "10.1.0.1")}, "eth0")["address"] == "10.0.0.1"
    assert network.choose(ALL, {"a": via("eth0", "fd00::1")})["address"] == "fd00::1"


def test_virtual_ones_and_loopback_never_win() -> None:
    routes = {"a": via("docker0", "172.17.0.1"), "b": via("docker0", "172.17.0.1"), "c": via("eth0", "10.0.0.1")}
    assert network.choose(ALL, routes)["interface"] == "eth0"
    chosen = network.choose(ALL, {"a": via("docker0", "172.17.0.1"), "b": {"error": "no route to b (10.9.9.9)"}})
    assert chosen["interface"] is None
    assert "a through docker0; no route to b (10.9.9.9)" in chosen["problem"]
    assert "ringmaster_interface or ringmaster_cluster_ip" in chosen["problem"]


def test_without_a_source_the_first_address_counts() -> None:
    assert network.choose(ALL, {"a": via("eth0")})["address"] == "10.0.0.1"
    bare = {**interface("eth0"), "virtual": False}
    assert "eth0 has no address" in network.choose([bare], {"a": via("eth0")})["problem"]


@pytest.mark.parametrize(
    ("name", "address", "chosen"),
    [
        ("eth1", "", ("eth1", "10.1.0.1")),
        ("", "fd00::1", ("eth0", "fd00::1")),
        ("docker0", "", ("docker0", "172.17.0.1")),  # the user knows
        ("eth0", "10.0.0.1", ("eth0", "10.0.0.1")),
    ],
)
def test_what_the_user_gives_wins(name: str, address: str, chosen: tuple[str, str]) -> None:
    found = network.choose(ALL, {"a": via("eth0", "10.0.0.1")}, name, address)
    assert (found["interface"], found["address"]) == chosen
    assert found["problem"] is None


@pytest.mark.parametrize(
    ("name", "address", "says"),
    [
        ("eth7", "", "no interface 'eth7' here (there is lo, docker0, eth0, eth1): correct ringmaster_interface"),
        ("", "10.5.5.5", "no interface has the address 10.5.5.5"),
        ("eth1", "10.0.0.1", "(there is eth1 10.1.0.1)"),
    ],
)
def test_what_the_user_gives_must_be_there(name: str, address: str, says: str) -> None:
    assert says in network.choose(ALL, {}, name, address)["problem"]


SHOWN = """\
[{"ifname":"lo","mtu":65536,"addr_info":[{"local":"127.0.0.1","prefixlen":8,"scope":"host"}]},{"ifname":"ens5","mtu":1400,\
"addr_info":[{"local":"10.0.0.1","prefixlen":24,"scope":"global"},{"local":"fe80::1","prefixlen":64,"scope":"link"}]},{}]
[{"dst":"10.0.0.2","dev":"ens5","prefsrc":"10.0.0.1","flags":[]}]
[{"type":"local","dst":"10.0.0.1","dev":"lo","prefsrc":"10.0.0.1"}]
"""


def test_the_kernel_is_asked_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def run(command: list[str], limit_s: float, *, text: str) -> "subprocess.CompletedProcess[str]":
        asked.append(text)
        return subprocess.CompletedProcess(command, 1, SHOWN, "RTNETLINK answers: Network is unreachable\n")

    monkeypatch.setattr(network, "finished", run)
    monkeypatch.setattr(network, "resolve", lambda name: ([], None))
    peers = {"n2": "10.0.0.2", "me": "10.0.0.1", "n3": "10.9.9.9", "n4": "gpu4"}
    found = network.look_network(peers, "", "")
    assert asked == ["address show\nroute get 10.0.0.2\nroute get 10.0.0.1\nroute get 10.9.9.9\n"]
    assert found["routes"] == {
        "n2": {"interface": "ens5", "source": "10.0.0.1"},
        "me": {"error": "10.0.0.1 is this node itself, not me: set ringmaster_cluster_ip of me"},
        "n3": {"error": "no route to n3 (10.9.9.9)"},
        "n4": {"error": "gpu4 resolves neither on the controller nor here: set ringmaster_cluster_ip of n4"},
    }
    assert (found["cluster"]["interface"], found["cluster"]["address"]) == ("ens5", "10.0.0.1")
    assert (found["cluster"]["mtu"], found["cluster"]["problem"]) == (1400, None)
    assert [one["addresses"] for one in found["interfaces"]] == [["127.0.0.1"], ["10.0.0.1"]]


def test_a_single_node_looks_to_the_operator_then_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "connection", lambda: {"client": "10.0.0.9"})
    answers = [{"ifname": "lo"}, {"ifname": "eth0", "addr_info": [{"local": "10.0.0.1", "prefixlen": 24}]}]
    answers += [{"dst": "10.0.0.9", "dev": "lo"}, {"dst": "192.0.2.1", "dev": "eth0", "prefsrc": "10.0.0.1"}]
    monkeypatch.setattr(network, "_ask_kernel", lambda addresses: (answers, ""))
    found = network.look_network({}, "", "")
    assert found["cluster"]["interface"] == "eth0"
    assert found["routes"] == {}


def test_without_the_program_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> None:
        raise FileNotFoundError("ip")

    monkeypatch.setattr(network, "finished", run)
    assert "iproute2" in network.look_network({"n2": "10.0.0.2"}, "", "")["cluster"]["problem"]


HOSTS = """\
127.0.0.1 localhost.localdomain localhost
127.0.1.1\tn1.example.org n1 # as installed
::1 ip6-localhost n1
10.0.0.1 n1 store
10.0.0.2 n2
"""


def test_own_names_canonical_first() -> None:
    assert names.own_names(HOSTS, "n1") == ["n1.example.org", "n1", "store"]
    assert names.own_names(HOSTS, "other") == []


def test_loopback_lines() -> None:
    assert names.loopback_lines(HOSTS, "n1") == ["127.0.1.1\tn1.example.org n1 # as installed", "::1 ip6-localhost n1"]
    assert names.loopback_lines(HOSTS, "n2") == []
    assert names.loopback_lines(HOSTS, "localhost") == []


def test_masked_and_back() -> None:
    masked = with_masked(HOSTS, names.loopback_lines(HOSTS, "n1"))
    assert names.loopback_lines(masked, "n1") == []
    assert "\n# ringmaster: 127.0.1.1\tn1.example.org n1 # as installed\n" in masked
    assert without_masked(masked) == HOSTS
    assert with_masked("127.0.1.1 n1", ["127.0.1.1 n1"]) == "# ringmaster: 127.0.1.1 n1"


def test_our_block_and_mask_change_nothing_of_the_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names.socket, "gethostname", lambda: "n1")
    monkeypatch.setattr(names, "resolve", lambda name: (["10.0.0.1"], "from.our.block"))
    block = "# BEGIN ringmaster\n10.0.0.1 from.our.block n1\n# END ringmaster\n"
    monkeypatch.setattr(names, "read", lambda path: block + with_masked(HOSTS, names.loopback_lines(HOSTS, "n1")))
    found = names.look_names()
    assert found["names"] == ["n1.example.org", "n1", "store"]
    assert found["loopback_lines"] == []
    assert len(found["masked_lines"]) == 2
    assert found["resolves_to"] == ["10.0.0.1"]


def test_a_name_server_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def getaddrinfo(*_: Any, **__: Any) -> None:
        release.wait(10)
        raise OSError

    monkeypatch.setattr(names.socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(names, "_SECONDS", 0.05)
    assert names.resolve("gone") == (None, None)
    release.set()
