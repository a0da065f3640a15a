"""Decides the nodes' addresses and names, and the variables with which NCCL and Gloo find the network.

Pure, except that names are resolved on the controller.
"""

import ipaddress
import re
import shlex
import socket
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

Facts = Mapping[str, Any]
# As verify.yml calls them: the shell that `ssh node command` starts, an interactive shell, a login shell.
_SHELLS = ("ssh", "bash -ic", "bash -lc")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def peer_addresses(hostvars: Mapping[str, Any], names: Iterable[str]) -> dict[str, str]:
    """Return each node's address: ringmaster_cluster_ip, else the address of ansible_host.

    A name that this machine can't resolve (or only to itself) is returned as it is, for the nodes to try.
    """
    addresses = {}
    for name in names:
        host = hostvars[name]
        addresses[name] = str(host.get("ringmaster_cluster_ip") or _resolved(str(host.get("ansible_host") or name)))
    return addresses


@lru_cache(maxsize=1024)
def _resolved(name: str) -> str:
    if _is_address(name):
        return name.strip("[]")
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return name
    addresses = [str(one[4][0]) for one in sorted(answers, key=lambda one: one[0] != socket.AF_INET)]
    return next((one for one in addresses if not ipaddress.ip_address(one.partition("%")[0]).is_loopback), name)


def node_names(facts: Mapping[str, Facts]) -> dict[str, list[str]]:
    """Return each node's names that mean no other node: canonical name, host name, inventory name. No addresses.

    A host name that two nodes share means neither of them. Nor does a host name that is another node's inventory name.
    """
    claims = {
        node: list(dict.fromkeys([fact["network"]["names"][0], fact["hostname"]])) for node, fact in facts.items()
    }
    claimed = Counter(one for names in claims.values() for one in names)
    return {
        node: [
            one
            for one in dict.fromkeys([*names, node])
            if _is_name(one) and (one == node or (claimed[one] == 1 and one not in facts))
        ]
        for node, names in claims.items()
    }


def comm_problems(extra: Any) -> list[str]:
    """Return what is wrong with ringmaster_comm_env, each problem with its remedy."""
    if not isinstance(extra, Mapping):
        return ["ringmaster_comm_env is not a mapping: write it as `NAME: value` lines"]
    problems = []
    for name, value in extra.items():
        if not _VARIABLE.fullmatch(str(name)):
            problems.append(f"ringmaster_comm_env: '{name}' can't name a variable: use letters, digits and _")
        elif isinstance(value, bool) or not isinstance(value, str | int | float):
            problems.append(f"ringmaster_comm_env: {name} is neither text nor a number: write 1 or 0, or quote it")
        elif any(ord(one) < 32 or ord(one) == 127 for one in str(value)):
            problems.append(f"ringmaster_comm_env: {name} has a line break or control character: write it on one line")
    return problems


def comm_variables(
    network: Facts, extra: Mapping[str, Any], nccl_debug: str = "", infiniband: str = "auto"
) -> dict[str, str]:
    """Return the one dictionary that every file is written from; the user's own variables win.

    Raises:
        ValueError: a value of `extra` can't be written, or the cluster's interface isn't known.
    """
    problems = comm_problems(extra)
    if problems:
        raise ValueError("; ".join(problems))
    cluster = network["cluster"]
    interface, address = cluster["interface"], cluster["address"]
    if not interface:
        raise ValueError(cluster["problem"])
    # "=" means exactly this interface: NCCL matches by prefix otherwise, and takes eth10 for eth1. Gloo matches no
    # patterns.
    variables = {"NCCL_SOCKET_IFNAME": f"={interface}"}
    if cluster["gloo"]:  # else it would find another address there than by the host name
        variables["GLOO_SOCKET_IFNAME"] = str(cluster["gloo"])
    if ":" in address:
        variables["NCCL_SOCKET_FAMILY"] = "AF_INET6"
    if nccl_debug:
        variables["NCCL_DEBUG"] = nccl_debug
    if infiniband == "avoid" or (infiniband == "auto" and not network["infiniband"]):
        variables["NCCL_IB_DISABLE"] = "1"
    # The last is nobody's to override: jobs take the node's address from it (launcher/on_node/addresses.py).
    return variables | {str(name): str(value) for name, value in extra.items()} | {"RINGMASTER_CLUSTER_IP": address}


def comm_files(
    facts: Mapping[str, Facts], nodes: Iterable[str], me: str, variables: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the files of the role on the node `me`, as `changed_files` takes them."""
    user = facts[me]["user"]
    nccl = {name: value for name, value in variables.items() if name.startswith("NCCL_")}
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    return [
        {"path": "/etc/ringmaster/comm.env", "text": _lines(variables)},
        # Above everything: a bashrc may return at its top for shells that aren't interactive.
        {"path": f"{user['home']}/.bashrc", "how": "block", "top": True, "text": exports, "owner": user["name"]},
        # NCCL keeps the first value that it reads in this file.
        {"path": "/etc/nccl.conf", "how": "block", "top": True, "text": _lines(nccl)},
        {"path": "/etc/hosts", "how": "block", "top": True, "pieces": host_lines(facts, nodes, me)},
    ]


def host_lines(facts: Mapping[str, Facts], nodes: Iterable[str], me: str) -> dict[str, str | None]:
    """Return the lines of /etc/hosts on the node `me`, by node, itself first; None for a node that was not looked at.

    The node's own names come first on its own line, in the order they had: `hostname -f` keeps its answer.
    """
    own = facts[me]["network"]
    shared = node_names(facts)
    mine = [one for one in dict.fromkeys([*own["names"], facts[me]["hostname"], *shared[me]]) if _is_name(one)]
    pieces: dict[str, str | None] = {me: _line(facts[me], mine) + _other_names(own)}
    for node in nodes:
        if node != me:
            names = [one for one in shared.get(node, []) if one not in mine]
            pieces[node] = _line(facts[node], names) if node in facts else None
    return pieces


def _line(fact: Facts, names: list[str]) -> str:
    address = fact["network"]["cluster"]["address"]
    return f"{address} {' '.join(names)}\n" if address and names else ""


def _other_names(own: Facts) -> str:
    """Return the other names in the masked loopback lines, such as localhost in `127.0.0.1 localhost node1`."""
    kept = ""
    for line in dict.fromkeys([*own["masked_lines"], *own["loopback_lines"]]):
        address, *names = line.partition("#")[0].split()
        rest = [one for one in names if one not in own["names"]]
        kept += f"{address} {' '.join(rest)}\n" if rest else ""
    return kept


def comm_findings(shown: Sequence[str], variables: Mapping[str, str], fact: Facts) -> list[str]:
    """Return what differs: shells without the variables, an interface without the address, a name that means another.

    `shown` has a line `shell: NAME=value` for each variable of each kind of shell. The shell that ssh starts counts
    only where it is bash: other shells read no bashrc. A login shell counts only where it has any of the variables:
    otherwise the user's own start file doesn't read the bashrc, and that is the user's decision.
    """
    findings, network = [], fact["network"]
    for shell in _SHELLS if fact["user"]["shell"].endswith("/bash") else _SHELLS[1:]:
        missing = [name for name, value in variables.items() if f"{shell}: {name}={value}" not in shown]
        if missing and (shell != "bash -lc" or len(missing) < len(variables)):
            findings.append(
                f"{shell} lacks {', '.join(missing)} although ~/.bashrc sets it: something overrides it, or keeps bash "
                "from reading that file; see the files in ~ and /etc that bash reads at its start"
            )
    interface, address = network["cluster"]["interface"], network["cluster"]["address"]
    carried: list[str] = next((one["addresses"] for one in network["interfaces"] if one["name"] == interface), [])
    if address not in carried:
        findings.append(
            f"the interface {interface} does not have the address {address} but {', '.join(carried) or 'none'}: "
            "correct ringmaster_cluster_ip or ringmaster_interface, and provision again"
        )
    if (network["resolves_to"] or [None])[0] != address:
        findings.append(
            f"the node's own name means {', '.join(network['resolves_to'] or ['nothing'])} and not {address}, although "
            "/etc/hosts says so: see `hosts` in /etc/nsswitch.conf"
        )
    return findings


def _lines(variables: Mapping[str, str]) -> str:
    """Return lines as docker's --env-file and nccl.conf take them: no quotes, nothing expanded."""
    return "".join(f"{name}={value}\n" for name, value in variables.items())


def _is_name(text: str) -> bool:
    """Return whether a text can name a machine: no address, no pattern of ssh's, no localhost."""
    return bool(_NAME.fullmatch(text)) and not _is_address(text) and text.split(".")[0] != "localhost"


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return False
    return True


class FilterModule:
    """Ansible's way in."""

    def filters(self) -> dict[str, Any]:
        return {
            "peer_addresses": peer_addresses,
            "node_names": node_names,
            "comm_problems": comm_problems,
            "comm_variables": comm_variables,
            "comm_files": comm_files,
            "comm_findings": comm_findings,
        }
