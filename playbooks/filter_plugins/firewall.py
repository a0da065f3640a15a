"""What the firewall of each node shall let in, and whether it does already: pure, from the probe's facts."""

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

Facts = Mapping[str, Any]
Addresses = Mapping[str, Mapping[str, Any]]
"""Of each node: its `addresses`, and whether it was `seen` in this run."""


def firewall_addresses(facts: Mapping[str, Facts], given: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return every address by which each node may come to another one, from the facts and the inventory's addresses.

    Not all that a node has: a private network on its other side may stand for someone else on this side.
    """
    found = {}
    for node, address in given.items():
        addresses = {address, *(_own(facts[node]["network"]) if node in facts else ())}
        found[node] = {"addresses": _usable(addresses), "seen": node in facts}
    return found


def firewall_plan(fact: Facts, addresses: Addresses, node: str, mode: str) -> dict[str, Any]:
    """Return for one node whom to let in (`peers`, `ssh_ports`), and whether it must be touched (`change`)."""
    now = fact["firewall"]
    peers = _peers(now, addresses, node)
    ports = sorted({*now["ports"], *([fact["ssh"]["port"]] if fact["ssh"] else ())})
    if mode == "cluster_only":
        open_ports = ports if now["opens_ssh"] else []
        closed = now["enabled"] and now["incoming"] in ("deny", "reject")
        as_wanted = closed and now["ours"] == peers and now["ssh"] == open_ports
    elif mode == "disabled":
        as_wanted = not (now["enabled"] or now["ours"] or now["ssh"])
    else:
        as_wanted = not (now["ours"] or now["ssh"] or "firewall" in fact["changed_by_us"])
    return {
        "install": mode == "cluster_only" and not now["installed"],
        "peers": peers,
        "ssh_ports": ports,
        "change": now["rollback_pending"] or not as_wanted,
    }


def firewall_problem(failed: Mapping[str, Any], fact: Facts, seconds: int) -> str:
    """Return what is wrong with a change, where it isn't proven that the operator still comes in."""
    said = str(failed.get("msg", ""))
    if not failed.get("timedout") and not failed.get("unreachable"):
        return said
    connection = fact.get("ssh")
    who = connection["client"] if connection else "this machine"
    return (
        f"no new SSH connection after the change of the firewall: the node takes it back by itself within {seconds} s. "
        f"See `sudo ufw show added` there for a rule against {who}, mend it, and provision again "
        "(or set ringmaster_firewall: keep)"
    )


def _own(network: Facts) -> Iterable[str]:
    cluster = network["cluster"]
    yield str(cluster["address"])
    yield from (one["source"] for one in network["routes"].values() if one.get("source"))
    for interface in network["interfaces"]:
        if interface["name"] == cluster["interface"]:
            yield from interface["addresses"]


def _usable(texts: Iterable[str]) -> list[str]:
    """Return what is an address, and one that means the same machine everywhere."""
    found = set()
    for text in texts:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        if not (address.is_loopback or address.is_link_local or address.is_unspecified):
            found.add(str(address))
    return sorted(found)


def _peers(now: Facts, addresses: Addresses, me: str) -> dict[str, list[str]]:
    """Return whom to let in; a node that wasn't seen in this run keeps the rules it has."""
    found = {}
    for node, known in addresses.items():
        if node == me:
            continue
        wanted = known["addresses"] if known["seen"] else now["ours"].get(node, known["addresses"])
        usable = [one for one in wanted if now["ipv6"] or ":" not in one]
        if usable:
            found[node] = usable
    return found


class FilterModule:
    """Ansible's way in."""

    def filters(self) -> dict[str, Any]:
        return {
            "firewall_addresses": firewall_addresses,
            "firewall_plan": firewall_plan,
            "firewall_problem": firewall_problem,
        }
