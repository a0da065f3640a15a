"""Reads the node's network: the interface to the other nodes, and what the node's own name means. Read-only."""

from __future__ import annotations

import ipaddress
import json
import os
from collections import Counter
from fnmatch import fnmatch
from typing import Any

from ansible.module_utils.ringmaster.core.addresses import cluster_address, public_addresses
from ansible.module_utils.ringmaster.core.probe import interface
from ansible.module_utils.ringmaster.core.program import finished
from ansible.module_utils.ringmaster.names.look import look_names, resolve
from ansible.module_utils.ringmaster.system.look import connection

Routes = dict[str, dict[str, str]]

# Interfaces that engines, hypervisors and container networks make for themselves. They lead to no other node, even
# where several nodes have one with the same subnet. Tunnels (wg0, tailscale0, tun0) may be the cluster's network.
_VIRTUAL = ("lo", "docker*", "br-*", "veth*", "virbr*", "cni*", "flannel*", "cali*", "podman*", "lxcbr*", "lxdbr*")
# An address that nobody has (RFC 5737): the way there is the default route.
_ANYWHERE = "192.0.2.1"
_SECONDS = 20.0  # for `ip` to answer
_REMEDY = "set ringmaster_interface or ringmaster_cluster_ip for this node in the inventory"


def look_network(peers: dict[str, str], given_interface: str, given_address: str) -> dict[str, Any]:
    """Return the interfaces, the routes to `peers` (address by name), and the cluster's interface and address here.

    Without peers the route to the operator counts, or else the default route.
    """
    targets = peers or _elsewhere()
    addresses = {name: _address(given) for name, given in targets.items()}
    answers, trouble = _ask_kernel([one for one in addresses.values() if one])
    interfaces = [_interface(one) for one in answers if "ifname" in one]
    routes = {name: _route(name, targets[name], address, answers, trouble) for name, address in addresses.items()}
    return {
        "interfaces": [
            {"name": one["name"], "addresses": one["every"], "mtu": one["mtu"], "virtual": one["virtual"]}
            for one in interfaces
        ],
        "public": public_addresses(interfaces),
        "routes": routes if peers else {},
        "cluster": choose(interfaces, routes, given_interface, given_address),
        "infiniband": _infiniband(),
        **look_names(),
    }


def choose(
    interfaces: list[dict[str, Any]], routes: Routes, given_interface: str = "", given_address: str = ""
) -> dict[str, Any]:
    """Return where the others reach this node, as `cluster_address` does, or a problem with its remedy."""
    if given_interface or given_address:
        source = _source(routes, given_interface)
        return cluster_address(interfaces, interface=given_interface, address=given_address, preferred=source)
    virtual = {one["name"] for one in interfaces if one["virtual"]}
    used = Counter(one["interface"] for one in routes.values() if one.get("interface", "lo") not in virtual | {"lo"})
    if used:
        name = used.most_common(1)[0][0]
        return cluster_address(interfaces, interface=name, preferred=_source(routes, name))
    reasons = sorted({one.get("error") or f"{name} through {one['interface']}" for name, one in routes.items()})
    return _problem(f"no interface leads to the other nodes ({'; '.join(reasons)}): {_REMEDY}")


def _source(routes: Routes, name: str) -> str:
    """Return the address that the kernel sends from on an interface, to most of the other nodes."""
    sources = Counter(one["source"] for one in routes.values() if one.get("interface") == name and one["source"])
    return sources.most_common(1)[0][0] if sources else ""


def _problem(text: str) -> dict[str, Any]:
    return {"interface": None, "address": None, "mtu": None, "problem": text, "gloo": "", "nccl_problem": ""}


def _elsewhere() -> dict[str, str]:
    """Return the places that a node without peers looks to, the operator first (Counter keeps the order of equals)."""
    ssh = connection()
    return {**({"the operator": ssh["client"]} if ssh else {}), "the default route": _ANYWHERE}


def _address(text: str) -> str | None:
    """Return an address in the kernel's spelling; a name that the controller could not resolve is resolved here."""
    try:
        return str(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        addresses, _ = resolve(text)
        return next(iter(addresses or []), None)


def _ask_kernel(addresses: list[str]) -> tuple[list[dict[str, Any]], str]:
    """Return interfaces and routes as `ip` shows them (one process), or what is wrong with `ip` itself."""
    commands = ["address show", *(f"route get {address}" for address in addresses)]
    try:
        # -force: a question that fails (no route) doesn't stop the others.
        done = finished(["ip", "-json", "-force", "-batch", "-"], _SECONDS, text="\n".join(commands) + "\n")
    except OSError as error:
        return [], f"the program ip (package iproute2) can't be used: {error}"
    answers: list[dict[str, Any]] = []
    text, reader = done.stdout.strip(), json.JSONDecoder()
    while text:
        try:
            some, end = reader.raw_decode(text)
        except ValueError:
            return answers, f"the program ip says {text[:60]!r}"
        answers += [one for one in some if one]
        text = text[end:].lstrip()
    return answers, ""


def _interface(shown: dict[str, Any]) -> dict[str, Any]:
    return {**interface(shown), "virtual": any(fnmatch(shown["ifname"], pattern) for pattern in _VIRTUAL)}


def _route(name: str, given: str, address: str | None, answers: list[dict[str, Any]], trouble: str) -> dict[str, str]:
    """Return the route to a node, found by the destination in the kernel's answers, or why there is none."""
    if address is None:
        return {"error": f"{given} resolves neither on the controller nor here: set ringmaster_cluster_ip of {name}"}
    answer = next((one for one in answers if one.get("dst") == address and "dev" in one), None)
    if answer is None:
        return {"error": trouble or f"no route to {name} ({address})"}
    if answer.get("type") == "local":
        return {"error": f"{address} is this node itself, not {name}: set ringmaster_cluster_ip of {name}"}
    return {"interface": answer["dev"], "source": answer.get("prefsrc", "")}


def _infiniband() -> bool:
    try:
        return bool(os.listdir("/sys/class/infiniband"))
    except OSError:
        return False
