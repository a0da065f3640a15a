"""What this machine tells of its nodes, and what is refused before anything starts."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.inventory.hosts import Host
from launcher.local import machine
from launcher.local.facts import gather, refuse_unknown_interfaces, refuse_unseen_gpus
from tests.support.plans import facts, plan_for, request


def host(**settings: object) -> Host:
    return Host(name="node1", address="127.0.0.1", settings={"runtime": "process", **settings})


def test_a_node_on_this_machine() -> None:
    (fact,) = gather([host()])
    assert (fact.address, fact.interface, fact.cores) == ("127.0.0.1", "lo", machine.cores())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (host(runtime="docker"), "only 'process'"),
        (replace(host(), address="203.0.113.1"), "not an address of this machine"),
        (host(cluster_ip="203.0.113.1"), "not an address of this machine"),
        (host(interface="nope0"), "no network interface 'nope0'"),
    ],
)
def test_a_node_that_cannot_run_here_is_refused(wrong: Host, message: str) -> None:
    with pytest.raises(RingmasterError, match=message):
        gather([wrong])


def test_an_interface_that_a_variable_names_and_this_machine_lacks() -> None:
    refuse_unknown_interfaces(facts(1), request(variables={"GLOO_SOCKET_IFNAME": "lo"}))
    with pytest.raises(RingmasterError, match=r"^node1: GLOO_SOCKET_IFNAME=nope0 \(from ENV\): no interface here fits"):
        refuse_unknown_interfaces(facts(1), request(variables={"GLOO_SOCKET_IFNAME": "nope0"}))


class TestGpusThatTorchDoesNotSee:
    def test_are_never_trained_without_in_silence(self, tmp_path: Path) -> None:
        plan = plan_for([replace(fact, gpus=(str(rank),)) for rank, fact in enumerate(facts(2))])
        with pytest.raises(RingmasterError, match=r"2 GPU\(s\) planned, torch .* sees") as raised:
            refuse_unseen_gpus(plan, Path(sys.executable))
        assert raised.value.exit_code == ExitCode.NOT_STARTED

    def test_are_meant_where_the_inventory_says_gloo(self) -> None:
        refuse_unseen_gpus(plan_for(facts(1, gpus=("0",), backend="gloo")), Path("/none"))
        refuse_unseen_gpus(plan_for(facts(1)), Path("/none"))
