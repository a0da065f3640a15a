"""How the nodes of a job reach each other."""

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.cluster.preflight.network import cluster_address, free_port, shared_network
from launcher.job import rendezvous
from launcher.on_node.addresses import RECORD
from tests.support.probe_answers import answer, host, interface


@pytest.mark.parametrize(
    ("settings", "comm_env", "name", "address"),
    [
        ({}, "eth1", "eth1", "10.0.0.1"),
        ({}, "eth1,eth0", "eth1", "10.0.0.1"),
        ({"interface": "eth0"}, "eth1", "eth0", "192.0.2.1"),
        ({"cluster_ip": "10.0.0.101"}, "eth0", "eth1", "10.0.0.101"),
        ({"interface": "eth1", "cluster_ip": "10.0.0.101"}, "eth0", "eth1", "10.0.0.101"),
    ],
)
def test_the_inventory_wins_over_what_provisioning_found(
    settings: dict[str, str], comm_env: str, name: str, address: str
) -> None:
    recorded = {"GLOO_SOCKET_IFNAME": comm_env, **({RECORD: address} if address == "10.0.0.101" else {})}
    where = cluster_address(host(**settings), answer(comm_env=recorded))
    assert (where.interface, str(where.address.ip)) == (name, address)


@pytest.mark.parametrize(
    ("settings", "by_host_name"), [({}, True), ({"interface": "eth1"}, True), ({"cluster_ip": "10.0.0.1"}, False)]
)
def test_jobs_take_the_address_that_provisioning_recorded(settings: dict[str, str], by_host_name: bool) -> None:
    """The recorded one is the second of its interface, which Gloo finds only by the host name."""
    where = cluster_address(host(**settings), answer(comm_env={RECORD: "10.0.0.101"}))
    assert str(where.address) == ("10.0.0.101/24" if by_host_name else "10.0.0.1/24")
    assert where.by_host_name == by_host_name
    assert bool(where.nccl_problem) == by_host_name


def test_a_recorded_address_that_is_gone() -> None:
    with pytest.raises(ValueError, match=r"has the address 10\.0\.0\.7 .*is what provisioning found: .*TAGS=comm_env"):
        cluster_address(host(), answer(comm_env={RECORD: "10.0.0.7"}))


def test_an_address_that_the_host_name_does_not_mean_yet() -> None:
    with pytest.raises(ValueError, match=r"host name doesn't mean 10\.0\.0\.101 yet.*TAGS=comm_env"):
        cluster_address(host(cluster_ip="10.0.0.101"), answer(comm_env={RECORD: "10.0.0.1"}))


def test_ipv6_alone() -> None:
    there = [interface("lo", "127.0.0.1/8", "::1/128"), interface("eth1", "fd00::1/64")]
    where = cluster_address(host(), answer(comm_env={RECORD: "fd00::1"}, interfaces=there))
    assert (where.interface, str(where.address), where.by_host_name) == ("eth1", "fd00::1/64", False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"interface": "ib0"}, r"no interface 'ib0' .*there is lo, eth0, eth1.*correct ringmaster_interface"),
        ({"cluster_ip": "10.9.9.9"}, r"no interface has the address 10\.9\.9\.9 .*correct ringmaster_cluster_ip"),
        ({"interface": "eth0", "cluster_ip": "10.0.0.1"}, r"has the address 10\.0\.0\.1 \(there is eth0 192\.0\.2\.1"),
    ],
)
def test_what_the_node_has_not(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cluster_address(host(**settings), answer())


def test_a_file_without_the_interface() -> None:
    with pytest.raises(ValueError, match="TAGS=comm_env"):
        cluster_address(host(), answer(comm_env={}))


@pytest.mark.parametrize(
    ("mine", "theirs", "shared"),
    [
        ("10.0.0.1/24", "10.0.0.2/24", ("a", "b")),
        ("172.17.0.1/16", "172.17.0.1/16", None),  # an engine's bridge has the same address everywhere
        ("10.0.0.1/24", "10.0.1.2/24", None),
        ("127.0.0.1/8", "127.0.0.2/8", None),
        ("fd00::1/64", "fd00::2/64", ("a", "b")),
        ("fd00::1/128", "fd00::1/128", None),
        ("fd00::1/64", "10.0.0.1/24", None),
    ],
)
def test_shared_networks(mine: str, theirs: str, shared: tuple[str, str] | None) -> None:
    one, other = (answer(interfaces=[interface(name, carried)]) for name, carried in (("a", mine), ("b", theirs)))
    assert shared_network(one, other) == shared


class TestPort:
    def test_the_only_pair_left_is_found_wherever_the_search_starts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rendezvous, "PORTS", range(100, 105))
        assert {free_port({100, 103, 104}, "node1") for _ in range(50)} == {101}
        assert {free_port((), "node1") for _ in range(500)} == set(range(100, 105))

    def test_none_is_left(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rendezvous, "PORTS", range(100, 102))
        with pytest.raises(RingmasterError, match="every port from 100 to 101 on node1") as raised:
            free_port({100, 101}, "node1")
        assert raised.value.exit_code == ExitCode.NOT_STARTED
