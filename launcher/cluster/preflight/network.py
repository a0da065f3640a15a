"""How the nodes of a job reach each other: interface and address, shared networks, the rendezvous port. Pure."""

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Interface

from launcher.cluster.preflight.probe_answer import ProbeAnswer
from launcher.inventory.hosts import Host
from launcher.job.rendezvous import first_free


@dataclass(frozen=True, kw_only=True)
class ClusterAddress:
    """Where the other nodes reach a node."""

    interface: str
    address: IPv4Interface
    mtu: int


def cluster_address(host: Host, answer: ProbeAnswer) -> ClusterAddress:
    """Return where the other nodes reach this one: as the inventory says, else as provisioning found.

    Raises:
        ValueError: the node has no such interface or address; the message says how to fix that.
    """
    address = str(host.settings.get("cluster_ip") or "")
    name = str(host.settings.get("interface") or "")
    if not name and not address:
        # A list gives Gloo more contexts; only the first is the node's address.
        name = (answer.comm_env or {}).get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
        if not name:
            raise ValueError("/etc/ringmaster/comm.env names no GLOO_SOCKET_IFNAME: `make provision TAGS=comm_env`")
    named = [one for one in answer.interfaces if not name or one.name == name]
    if not named:
        there = ", ".join(one.name for one in answer.interfaces) or "none"
        raise ValueError(
            f"there is no interface '{name}' with an address (there is {there}): correct ringmaster_interface, "
            "or `make provision TAGS=comm_env`"
        )
    for one in named:
        for carried in one.addresses:
            if not address or str(carried.ip) == address:
                return ClusterAddress(interface=one.name, address=carried, mtu=one.mtu)
    there = ", ".join(f"{one.name} {carried.ip}" for one in named for carried in one.addresses)
    raise ValueError(f"no interface has the address {address} (there is {there}): correct ringmaster_cluster_ip")


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


def _local(address: IPv4Interface) -> bool:
    """Whether it leads to no other machine, or to another one only through a tunnel (a network of one address)."""
    return address.is_loopback or address.network.prefixlen == ipaddress.IPV4LENGTH
