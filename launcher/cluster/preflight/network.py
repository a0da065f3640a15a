"""How the nodes of a job reach each other: interface and address, shared networks, the rendezvous port. Pure."""

from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface, ip_interface

from launcher.cluster.preflight.probe_answer import ProbeAnswer
from launcher.inventory.hosts import Host
from launcher.job.rendezvous import first_free
from launcher.on_node import addresses


@dataclass(frozen=True, kw_only=True)
class ClusterAddress:
    """Where the other nodes reach a node."""

    interface: str
    address: IPv4Interface | IPv6Interface
    mtu: int
    by_host_name: bool
    """Whether Gloo must ask the host name for it: another address comes first on the interface."""
    nccl_problem: str
    """Why NCCL can't use it; empty if it can."""


def cluster_address(host: Host, answer: ProbeAnswer) -> ClusterAddress:
    """Return where the other nodes reach this one: as the inventory says, else as provisioning found and recorded.

    Raises:
        ValueError: the node has no such interface or address; the message says how to fix that.
    """
    there = _shown(answer)
    variables = answer.comm_env or {}
    address = str(host.settings.get("cluster_ip") or "")
    name = str(host.settings.get("interface") or "")
    recorded = variables.get(addresses.RECORD, "")
    if name or address:
        found = addresses.cluster_address(there, interface=name, address=address, preferred=recorded)
    elif recorded:
        found = addresses.cluster_address(there, address=recorded)
        if found["problem"]:
            found["problem"] += f"; {recorded} is what provisioning found: `make provision TAGS=comm_env`"
    else:
        # Provisioned before addresses were recorded. A list gives Gloo more contexts; the first has the node's address.
        name = variables.get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
        if not name:
            raise ValueError("/etc/ringmaster/comm.env names no address of this node: `make provision TAGS=comm_env`")
        found = addresses.cluster_address(there, interface=name)
    if found["problem"]:
        raise ValueError(found["problem"])
    if not found["gloo"] and recorded != found["address"]:
        raise ValueError(
            f"its host name doesn't mean {found['address']} yet, and Gloo would take another address of "
            f"{found['interface']}: `make provision TAGS=comm_env`"
        )
    return ClusterAddress(
        interface=found["interface"],
        address=ip_interface(found["carried"]),
        mtu=found["mtu"],
        by_host_name=not found["gloo"],
        nccl_problem=found["nccl_problem"],
    )


def public_addresses(answer: ProbeAnswer) -> list[str]:
    """Return the node's addresses that anyone on the internet can reach."""
    return addresses.public_addresses(_shown(answer))


def shared_network(one: ProbeAnswer, other: ProbeAnswer) -> tuple[str, str] | None:
    """Return the interfaces that put two nodes in one network, if there are any; engines' bridges don't count."""
    for mine in one.interfaces:
        for theirs in other.interfaces:
            for here in mine.addresses:
                for there in theirs.addresses:
                    if here.ip != there.ip and here.network == there.network and not _local(here):
                        return mine.name, theirs.name
    return None


def free_port(listening: Collection[int], head: str) -> int:
    """Return a port for the rendezvous: nothing listens on it, nor on the next one, on the head.

    Raises:
        RingmasterError: no pair of ports is free there.
    """
    return first_free(lambda port: not {port, port + 1} & set(listening), head)


def _shown(answer: ProbeAnswer) -> list[addresses.Interface]:
    """Return the interfaces as the probe shows them."""
    return [
        {**vars(one), "addresses": [str(carried) for carried in one.addresses], "every": list(one.every)}
        for one in answer.interfaces
    ]


def _local(address: IPv4Interface | IPv6Interface) -> bool:
    """Whether it leads to no other machine, or to another one only through a tunnel (a network of one address)."""
    return address.is_loopback or address.network.prefixlen == address.max_prefixlen
