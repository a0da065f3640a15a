"""The lab's own network: a bridge with a subnet that nothing else on this machine uses, and addresses that stay."""

import ipaddress
import json
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import docker
from docker.errors import APIError
from docker.models.networks import Network
from docker.types import IPAMConfig, IPAMPool

from lab.base.place import CHECKOUT, LABEL, Place
from lab.base.say import say
from launcher.base.errors import ExitCode, RingmasterError

ROLE_LABEL = "ringmaster.lab.network"
MAIN, ASIDE = "main", "aside"
_FIRST_NODE = 11
_REGISTRY = 250
_POOL = ipaddress.ip_network("10.192.0.0/12")


@dataclass(frozen=True, kw_only=True)
class Subnet:
    """Addresses of one network; a node has the same last number in each."""

    cidr: str

    @property
    def gateway(self) -> str:
        """This machine's address for the nodes."""
        return self._host(1)

    @property
    def registry(self) -> str:
        """The registry's address."""
        return self._host(_REGISTRY)

    def node(self, index: int) -> str:
        """Return the address of a node; the first has index 0."""
        return self._host(_FIRST_NODE + index)

    def _host(self, number: int) -> str:
        return str(ipaddress.ip_network(self.cidr)[number])


def candidates(seed: str, used: Iterable[str]) -> Iterator[str]:
    """Give subnets to try, beginning at one that depends on the seed, without those that overlap used ones."""
    networks = (ipaddress.ip_network(text, strict=False) for text in used)
    taken = [network for network in networks if isinstance(network, ipaddress.IPv4Network) and network.prefixlen]
    pool = [subnet for subnet in _POOL.subnets(new_prefix=24) if isinstance(subnet, ipaddress.IPv4Network)]
    start = int(seed, 16) % len(pool)
    for subnet in pool[start:] + pool[:start]:
        if not any(subnet.overlaps(network) for network in taken):
            yield str(subnet)


def provide(client: docker.DockerClient, place: Place, role: str, mtu: int) -> tuple[Network, Subnet]:
    """Return the lab's network of that role; make it now if it doesn't exist."""
    network = find(client, place, role) or _create(client, place, role, mtu)
    network.reload()
    return network, Subnet(cidr=network.attrs["IPAM"]["Config"][0]["Subnet"])


def find(client: docker.DockerClient, place: Place, role: str) -> Network | None:
    """Return the lab's network of that role, if it exists."""
    labels = [f"{LABEL}={place.label}", f"{ROLE_LABEL}={role}"]
    return next(iter(client.networks.list(filters={"label": labels})), None)


def remove(client: docker.DockerClient, place: Place, role: str) -> None:
    """Remove the lab's networks of that role; somebody else's container in one of them is disconnected."""
    labels = [f"{LABEL}={place.label}", f"{ROLE_LABEL}={role}"]
    for network in client.networks.list(filters={"label": labels}):
        network.reload()
        for stranger in network.containers:
            say(f"{stranger.name} is no lab node but was in the lab's network: disconnected")
            network.disconnect(stranger, force=True)
        network.remove()


def _create(client: docker.DockerClient, place: Place, role: str, mtu: int) -> Network:
    for subnet in candidates(CHECKOUT, _used()):
        pool = IPAMPool(subnet=subnet, gateway=Subnet(cidr=subnet).gateway)
        try:
            return client.networks.create(
                f"ringmaster-{place.label}-{role}",
                driver="bridge",
                ipam=IPAMConfig(pool_configs=[pool]),
                labels={LABEL: place.label, ROLE_LABEL: role},
                options={"com.docker.network.driver.mtu": str(mtu)},
            )
        except APIError as error:
            if "overlap" not in str(error).lower():  # another network of the engine: the next subnet
                raise
    raise RingmasterError(f"no free /24 in {_POOL} for the lab's network", exit_code=ExitCode.NOT_STARTED)


def _used() -> list[str]:
    """Return the subnets to which this machine has routes: the lab must not hide them."""
    listed = subprocess.run(["ip", "-json", "route"], capture_output=True, text=True, check=True, timeout=20).stdout
    return [str(route["dst"]) for route in json.loads(listed) if route["dst"] != "default"]
