"""Writes the texts of every node's SSH files: who may log in from where, and which host keys the nodes have. Pure."""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Facts = Mapping[str, Any]
_SSH_PORT = 22
# What `restrict` takes away and this gives back: a terminal for people, and the one tunnel that delivers images.
_ALLOWED = 'restrict,pty,port-forwarding,permitopen="127.0.0.1:{port}",permitlisten="127.0.0.1:{port}"'
_HEAD = "# Written by Ringmaster (role ssh_mesh); removed by reset.\n"
# The first is ours where the user has an id_ed25519 already. Once one is named, ssh tries no others: so the usual ones
# are named too, for other accounts and keys on the same machines. ssh skips a missing one silently.
_IDENTITIES = ("ringmaster_ed25519", "id_ed25519", "id_ecdsa", "id_rsa")

# How many nodes prove every pair of them; more prove a part, which grows with their number and not with its square.
_ALL_PAIRS = 8


@dataclass(frozen=True, kw_only=True)
class Node:
    """What the other nodes need to know about a node."""

    name: str
    names: tuple[str, ...]
    address: str
    """Its cluster address."""
    other_address: str | None
    """The operator's address for it, if the inventory has an address."""
    sources: Mapping[str, str]
    """The addresses it sends from, by the node it sends to."""
    port: int
    ports: tuple[int, ...]
    """All ports its sshd listens on; `port` is the one that others use."""
    user: str
    host_keys: tuple[str, ...]
    public_key: str | None
    """None: not made yet (check mode)."""


def mesh_nodes(
    facts: Mapping[str, Facts], hostvars: Mapping[str, Any], names: Mapping[str, list[str]]
) -> dict[str, Node]:
    """Return the nodes that were looked at. A key made in this run is in its node's variable `ssh_mesh_key`."""
    nodes = {}
    for name, fact in facts.items():
        host = hostvars[name]
        key = host.get("ssh_mesh_key") or {}
        ssh = fact.get("ssh") or {}
        ports = sorted({*([ssh["port"]] if ssh else []), *(fact["firewall"].get("ports") or [])}) or [_SSH_PORT]
        routes = fact["network"]["routes"]
        if fact["network"]["cluster"]["address"]:
            nodes[name] = Node(
                name=name,
                names=tuple(names[name]),
                address=fact["network"]["cluster"]["address"],
                other_address=_remote_address(host.get("ansible_host")),
                sources={peer: route["source"] for peer, route in routes.items() if route.get("source")},
                port=ssh["port"] if ssh else ports[0],
                ports=tuple(ports),
                user=fact["user"]["name"],
                host_keys=tuple(fact["host_keys"]),
                public_key=key.get("public_key") or fact["public_key"],
            )
    return nodes


def mesh_files(
    facts: Mapping[str, Facts],
    hostvars: Mapping[str, Any],
    names: Mapping[str, list[str]],
    inventory: Iterable[str],
    me: str,
    tunnel_port: int,
) -> list[dict[str, Any]]:
    """Return the files of the role on the node `me`, as `changed_files` takes them.

    A node of the inventory that was not looked at (down, or outside the limit) keeps its present lines.

    Raises:
        ValueError: a node before `me` has the same key.
    """
    nodes, inventory, home = mesh_nodes(facts, hostvars, names), list(inventory), facts[me]["user"]["home"]
    _refuse_doubles(nodes, me)

    def pieces(text: Any) -> dict[str, str | None]:
        return {name: text(nodes[name]) if name in nodes else None for name in inventory}

    return [
        {
            "path": f"{home}/.ssh/authorized_keys",
            "how": "block",
            "pieces": pieces(lambda node: authorized_key(node, me, tunnel_port)),
            "mode": "0600",
            "owner": nodes[me].user,
            "folder_mode": "0700",
        },
        {"path": "/etc/ssh/ssh_known_hosts", "how": "block", "pieces": pieces(known_hosts)},
        {
            "path": "/etc/ssh/ssh_config.d/ringmaster.conf",
            "head": _HEAD,
            "pieces": pieces(lambda node: ssh_config(node, nodes[me].user)),
        },
    ]


def authorized_key(node: Node, me: str, tunnel_port: int) -> str | None:
    """Return the line that lets `node` into the node `me`, from its own addresses only; None without its key."""
    if node.public_key is None:
        return None
    addresses = dict.fromkeys([node.address, node.sources.get(me) or node.address, node.other_address or node.address])
    key = " ".join(node.public_key.split()[:2])
    allowed = _ALLOWED.format(port=tunnel_port)
    return f'from="{",".join(addresses)}",{allowed} {key} ringmaster {node.name}\n'


def known_hosts(node: Node) -> str:
    places = [*node.names, *_addresses(node)]
    shown = [one if port == _SSH_PORT else f"[{one}]:{port}" for port in node.ports for one in places]
    return "".join(f"{','.join(shown)} {key}\n" for key in node.host_keys)


def ssh_config(node: Node, user: str) -> str:
    """Return how to reach `node`. That holds for every user of the machine; the login name only for the SSH user."""
    places = [*node.names, *_addresses(node)]
    lines = [f"Host {' '.join(places)}", f"    HostName {node.address}", f"    Port {node.port}"]
    lines += [f"    IdentityFile ~/.ssh/{one}" for one in _IDENTITIES]
    if node.user != user:
        lines += [f"Match localuser {user} originalhost {','.join(places)}", f"    User {node.user}"]
    return "\n".join(lines) + "\n"


def mesh_partners(facts: Mapping[str, Facts], inventory: Iterable[str], me: str) -> list[str]:
    """Return the nodes that the node `me` logs in at when the mesh is proved, in the order of the rounds.

    In round r each node logs in at the one r places after it, so each is asked by one other at a time; round 0 is the
    node itself. Up to `_ALL_PAIRS` nodes try all pairs. With more, a node takes part in the rounds 1, 2, 4, 8 and so
    on, and in the one with the first node; the first takes part in all. So every node is tried as client and as server,
    by neighbours near and far, every pair with the first is tried in both directions, and a node more costs each of the
    others nothing or one login.
    """
    nodes = [name for name in inventory if name in facts and facts[name]["network"]["cluster"]["address"]]
    place, count = nodes.index(me), len(nodes)
    rounds = set(range(count))
    if count > _ALL_PAIRS and place > 0:
        rounds = {0, count - place, *(1 << bit for bit in range((count - 1).bit_length()))}
    return [nodes[(place + distance) % count] for distance in sorted(rounds)]


def mesh_targets(
    facts: Mapping[str, Facts], names: Mapping[str, list[str]], inventory: Iterable[str], me: str
) -> list[list[str]]:
    """Return for each partner of the node `me`, in order, all its names and its address."""
    partners = mesh_partners(facts, inventory, me)
    return [[*names[name], facts[name]["network"]["cluster"]["address"]] for name in partners]


def _refuse_doubles(nodes: Mapping[str, Node], me: str) -> None:
    """Refuse machines that were cloned from one disk and have one key: each could log in as the other.

    Raises:
        ValueError: a node before `me` has the same key.
    """
    for name, node in nodes.items():
        if name == me:
            return
        if node.public_key and node.public_key.split()[:2] == (nodes[me].public_key or "").split()[:2]:
            raise ValueError(
                f"{me} has the same key as {name} (cloned?): remove the key in {me}'s ~/.ssh whose comment begins with "
                f"'ringmaster', both halves, and provision again"
            )


def _addresses(node: Node) -> list[str]:
    return list(dict.fromkeys([node.address, *([node.other_address] if node.other_address else [])]))


def _remote_address(place: Any) -> str | None:
    """Return an address that others may know the node by too; None for names and for this machine's loopback."""
    try:
        address = ipaddress.ip_address(str(place).strip("[]"))
    except ValueError:
        return None
    return None if address.is_loopback else str(address)


class FilterModule:
    """Ansible's way in."""

    def filters(self) -> dict[str, Any]:
        return {"mesh_files": mesh_files, "mesh_partners": mesh_partners, "mesh_targets": mesh_targets}
