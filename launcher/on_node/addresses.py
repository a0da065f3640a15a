"""Decides which address of a node is the cluster's, and which are public: one rule, for provisioning and jobs. Pure.

The launcher imports it, and so do the Ansible modules, by a link in `playbooks/module_utils/ringmaster/core/`. An
interface is what `interface` in `probe.py` returns.
"""

from __future__ import annotations

import ipaddress
from typing import Any

RECORD = "RINGMASTER_CLUSTER_IP"
"""Variable in /etc/ringmaster/comm.env: the address that provisioning chose, and that jobs take."""

Interface = dict[str, Any]


def cluster_address(
    interfaces: list[Interface], *, interface: str = "", address: str = "", preferred: str = ""
) -> dict[str, Any]:
    """Return where the other nodes reach this one.

    Of the result, `problem` says what is wrong where there is no such address. `gloo` is the name by which Gloo finds
    the address. It is empty where another address comes first on the interface: Gloo, which takes the first one of the
    interface that it is given, must ask the host name then. NCCL can't: `nccl_problem` says so.

    Args:
        interface: the inventory's choice, or where the routes to the other nodes lead; empty: any interface.
        address: the inventory's choice, or what was recorded.
        preferred: counts without `address`, if the interface has it. Otherwise the interface's first address counts.
    """
    named = [one for one in interfaces if not interface or one["name"] == interface]
    if not named:
        names = ", ".join(one["name"] for one in interfaces) or "none"
        return _problem(f"there is no interface '{interface}' here (there is {names}): correct ringmaster_interface")
    carriers = [(one, carried) for one in named for carried in one["addresses"]]
    wanted = _plain(address or preferred)
    found = next((pair for pair in carriers if _plain(pair[1]) == wanted), None)
    if found is None and address:
        there = ", ".join(f"{one['name']} {_plain(carried)}" for one, carried in carriers) or "none"
        return _problem(f"no interface has the address {address} (there is {there}): correct ringmaster_cluster_ip")
    if found is None and not carriers:
        return _problem(f"the interface {interface or 'here'} has no address that others could use: give it one")
    return _found(*(found or carriers[0]))


def public_addresses(interfaces: list[Interface]) -> list[str]:
    """Return the addresses that anyone on the internet can reach, on whatever interface.

    All of them count for a job: torch's store listens on every address, whichever the cluster's is.
    """
    return [one for shown in interfaces for one in shown["every"] if ipaddress.ip_address(one).is_global]


def _found(interface: Interface, carried: str) -> dict[str, Any]:
    name, address = interface["name"], _plain(carried)
    ipv4, ipv6 = interface["first_ipv4"], interface["first_ipv6"]
    first = ipv6 if ":" in address else ipv4  # NCCL is told which of the two families is meant
    return {
        "interface": name,
        "address": address,
        "carried": carried,
        "mtu": interface["mtu"],
        "problem": None,
        "gloo": name if (ipv4 or ipv6) == address else "",
        "nccl_problem": "" if first == address else _other_first(name, address, first),
    }


def _other_first(name: str, address: str, first: str) -> str:
    if not first:
        return f"NCCL finds no address under the name {name}, only {address} under a label: add it without one"
    return (
        f"NCCL would take {first}, which comes first on {name}, and not {address}: if the other nodes reach {first}, "
        f"set ringmaster_cluster_ip: {first}; if not, make {address} the first address of {name}, or put it on an "
        "interface of its own"
    )


def _problem(text: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("interface", "address", "carried", "mtu"))
    return {**nothing, "problem": text, "gloo": "", "nccl_problem": ""}


def _plain(carried: str) -> str:
    """Return an address without the length of its network's prefix, in the kernel's spelling."""
    text = carried.partition("/")[0].strip("[]")
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text
