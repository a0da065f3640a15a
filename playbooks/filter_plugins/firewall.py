"""Decides what each node's firewall has to let in, and whether it does already, from the probe's facts. Pure."""

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

Facts = Mapping[str, Any]
Addresses = Mapping[str, Mapping[str, Any]]
"""Of each node: its `addresses`, and whether it was `seen` in this run."""


def firewall_addresses(facts: Mapping[str, Facts], inventory: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return every address that each node may connect from, out of the facts and the inventory's addresses.

    This leaves out some addresses of a node: one in a private network on its other side may be another machine's here.
    """
    known = {}
    for node, address in inventory.items():
        addresses = {address, *(_own(facts[node]["network"]) if node in facts else ())}
        known[node] = {"addresses": _usable(addresses), "seen": node in facts}
    return known


def firewall_plan(fact: Facts, addresses: Addresses, node: str, mode: str) -> dict[str, Any]:
    """Return for one node what to let in (`peers`, `ssh_ports`), whether it must be changed (`change`) and why.

    `problem` says why ufw can't be installed or removed now, where that is to be done; or it is empty.
    """
    now = fact["firewall"]
    peers = _peers(now, addresses, node)
    ports = sorted({*now["ports"], *([fact["ssh"]["port"]] if fact["ssh"] else ())})
    if mode == "cluster_only":
        open_ports = ports if now["opens_ssh"] else []
        is_off = not now["enabled"] or now["incoming"] not in ("deny", "reject")
        differs = ["ufw is off or lets all in"] if is_off else []
        differs += _rules_that_differ(now, peers, open_ports)
    else:
        differs = ["ufw is on"] if mode == "disabled" and now["enabled"] else []
        differs += _rules_that_differ(now, {}, [])
        if mode == "keep" and "firewall" in fact["changed_by_us"]:
            differs.append("an earlier change was not put back")
    if now["rollback_pending"]:
        differs.append("a change is not confirmed")
    removes = mode == "keep" and "firewall" in fact["packages_of"]
    installs = mode == "cluster_only" and not now["installed"]
    return {
        "problem": fact["in_use"] if differs and (installs or removes) else "",
        "install": installs,
        "peers": peers,
        "ssh_ports": ports,
        "change": bool(differs),
        "differs": differs,
    }


def _rules_that_differ(now: Facts, peers: Mapping[str, list[str]], ports: list[int]) -> list[str]:
    """Return the nodes whose rules with our comment differ from the wanted ones."""
    nodes = sorted(node for node in {*peers, *now["ours"]} if peers.get(node) != now["ours"].get(node))
    return ([f"the rules for {', '.join(nodes)}"] if nodes else []) + (["those for SSH"] if now["ssh"] != ports else [])


def firewall_problem(failed: Mapping[str, Any], fact: Facts, seconds: int, mode: str) -> str:
    """Return what went wrong with a change for which no proof came that the operator can still log in."""
    if not failed.get("timedout") and not failed.get("unreachable"):
        return str(failed.get("msg", ""))
    connection = fact.get("ssh")
    who = connection["client"] if connection else "this machine"
    # Once ufw is off, none of its rules can be the reason.
    advice = (
        f"ufw itself was being switched off: see what else may shut {who} out (another firewall, sshd, the network)"
        if mode == "disabled"
        else f"See `sudo ufw show added` there for a rule against {who}, and correct it"
    )
    return (
        f"no new SSH connection after the change of the firewall: the node takes it back by itself within {seconds} s. "
        f"{advice}; then run it again{'' if mode == 'keep' else ' (or set ringmaster_firewall: keep)'}"
    )


def _own(network: Facts) -> Iterable[str]:
    cluster = network["cluster"]
    yield str(cluster["address"])
    yield from (one["source"] for one in network["routes"].values() if one.get("source"))
    for interface in network["interfaces"]:
        if interface["name"] == cluster["interface"]:
            yield from interface["addresses"]


def _usable(texts: Iterable[str]) -> list[str]:
    """Return those texts that are addresses, and mean the same machine everywhere."""
    usable = set()
    for text in texts:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        if not (address.is_loopback or address.is_link_local or address.is_unspecified):
            usable.add(str(address))
    return sorted(usable)


def _peers(now: Facts, addresses: Addresses, me: str) -> dict[str, list[str]]:
    """Return the addresses to let in, by node; a node that wasn't seen in this run keeps the rules it has."""
    peers = {}
    for node, known in addresses.items():
        if node == me:
            continue
        wanted = known["addresses"] if known["seen"] else now["ours"].get(node, known["addresses"])
        usable = [one for one in wanted if now["ipv6"] or ":" not in one]
        if usable:
            peers[node] = usable
    return peers


class FilterModule:
    """Ansible's way in."""

    def filters(self) -> dict[str, Any]:
        return {
            "firewall_addresses": firewall_addresses,
            "firewall_plan": firewall_plan,
            "firewall_problem": firewall_problem,
        }
