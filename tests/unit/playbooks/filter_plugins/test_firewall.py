"""Which addresses the firewall lets in, and when a node is left alone."""

from typing import Any

import pytest
from firewall import firewall_addresses, firewall_plan, firewall_problem

GIVEN = {"node1": "10.0.0.1", "node2": "10.0.0.2", "node3": "node3.example"}
PEERS = {"node2": ["10.0.0.2", "10.1.0.2", "fd00::2"]}


def network(address: str, source: str = "") -> dict[str, Any]:
    return {
        "cluster": {"interface": "eth0", "address": address},
        "routes": {"node9": {"interface": "eth0", "source": source}, "node8": {"error": "no route"}},
        "interfaces": [
            {"name": "lo", "addresses": ["127.0.0.1"]},
            {"name": "eth0", "addresses": [address, "fd00::2", "fe80::2"]},
            {"name": "eth1", "addresses": ["192.168.1.5"]},
        ],
    }


def fact(**firewall: Any) -> dict[str, Any]:
    ufw = {
        "installed": True, "enabled": True, "incoming": "deny", "ipv6": True, "ours": PEERS, "ssh": [],
        "opens_ssh": False, "ports": [22], "rollback_pending": False,
    }  # fmt: skip
    return {
        "firewall": ufw | firewall, "ssh": {"client": "10.9.9.9", "port": 2222}, "changed_by_us": [],
        "in_use": "", "packages_of": [],
    }  # fmt: skip


ADDRESSES = firewall_addresses(
    {"node2": {"network": network("10.0.0.2", "10.1.0.2")}}, {"node1": "", "node2": "10.0.0.2"}
)


def plan(mode: str = "cluster_only", **firewall: Any) -> dict[str, Any]:
    return firewall_plan(fact(**firewall), ADDRESSES, "node1", mode)


def test_a_node_comes_by_the_addresses_on_the_clusters_side() -> None:
    found = firewall_addresses({"node2": {"network": network("10.0.0.2", "10.1.0.2")}}, GIVEN)
    assert found == {
        "node1": {"addresses": ["10.0.0.1"], "seen": False},
        "node2": {"addresses": ["10.0.0.2", "10.1.0.2", "fd00::2"], "seen": True},
        "node3": {"addresses": [], "seen": False},
    }


def test_a_node_as_it_shall_be_is_left_alone() -> None:
    assert not plan()["change"]
    assert not plan("disabled", enabled=False, ours={})["change"]
    assert not plan("disabled", installed=False, enabled=False, ours={})["change"]
    assert not plan("keep", ours={})["change"]


@pytest.mark.parametrize(
    ("mode", "changes", "refused"),
    [
        ("cluster_only", {"installed": False, "enabled": False}, True),
        ("cluster_only", {"enabled": False}, False),  # it is there: only its rules change
        ("disabled", {}, False),
        ("keep", {}, True),  # what we installed would be removed
        ("keep", {"ours": {}}, False),  # nothing differs
    ],
)
def test_ufw_does_not_come_or_go_under_running_jobs(mode: str, changes: dict[str, Any], refused: bool) -> None:
    busy = {**fact(**changes), "in_use": "job night runs there", "packages_of": ["firewall"]}
    assert firewall_plan(busy, ADDRESSES, "node1", mode)["problem"] == ("job night runs there" if refused else "")
    assert firewall_plan({**busy, "in_use": ""}, ADDRESSES, "node1", mode)["problem"] == ""


@pytest.mark.parametrize(
    "differs",
    [
        {"enabled": False}, {"incoming": "allow"}, {"incoming": None}, {"ours": {}}, {"rollback_pending": True},
        {"ours": PEERS | {"gone": ["10.0.0.9"]}}, {"ssh": [22]}, {"opens_ssh": True}, {"opens_ssh": True, "ssh": [22]},
    ],
)  # fmt: skip
def test_what_differs_is_changed(differs: dict[str, Any]) -> None:
    assert plan(**differs)["change"]


def test_the_live_connections_port_is_opened_too() -> None:
    assert plan(opens_ssh=True, ssh=[22, 2222]) == {
        "problem": "", "install": False, "peers": PEERS, "ssh_ports": [22, 2222], "change": False, "differs": [],
    }  # fmt: skip


def test_disabled_and_keep_take_back_what_was_ours() -> None:
    assert plan("disabled")["change"]
    assert plan("disabled", enabled=False)["change"]
    assert plan("keep")["change"]
    changed = fact(ours={}) | {"changed_by_us": ["firewall"]}
    assert firewall_plan(changed, ADDRESSES, "node1", "keep")["change"]


def test_ufw_is_installed_for_cluster_only_alone() -> None:
    assert plan(installed=False)["install"]
    assert not plan("disabled", installed=False, enabled=False, ours={})["install"]


def test_a_node_that_was_not_seen_keeps_its_rules() -> None:
    unseen = firewall_addresses({}, {"node1": "10.0.0.1", "node2": "10.0.0.2"})
    assert not firewall_plan(fact(), unseen, "node1", "cluster_only")["change"]
    assert firewall_plan(fact(ours={}), unseen, "node1", "cluster_only")["peers"] == {"node2": ["10.0.0.2"]}


def test_where_ufw_has_no_ipv6_its_addresses_are_left_out() -> None:
    assert plan(ipv6=False)["peers"] == {"node2": ["10.0.0.2", "10.1.0.2"]}


def test_the_message_names_whom_the_rules_keep_out() -> None:
    said = firewall_problem({"unreachable": True, "msg": "timed out"}, fact(), 90, "cluster_only")
    assert "10.9.9.9" in said and "90 s" in said and "ufw show added" in said and "\n" not in said
    assert "this machine" in firewall_problem({"timedout": {"period": 40}}, {}, 90, "keep")
    assert firewall_problem({"msg": "ufw says no"}, {}, 90, "keep") == "ufw says no"
    assert "ufw show added" not in firewall_problem({"unreachable": True}, fact(), 90, "disabled")


def test_what_differs_is_named() -> None:
    found = plan(ours=PEERS | {"node9": ["10.0.0.9"]}, ssh=[22], rollback_pending=True)["differs"]
    assert found == ["the rules for node9", "those for SSH", "a change is not confirmed"]
    assert plan("disabled")["differs"] == ["ufw is on", "the rules for node2"]
