"""A registry that the nodes pull from over the lab's network, off by default.

It speaks TLS with a certificate made at its start; each node's engine is given that certificate, so nothing is set to
be insecure. This machine's own engine pushes to the port on loopback, which every engine trusts.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass

import docker
from docker.models.containers import Container

from lab.base import command
from lab.base.place import LABEL, Place
from lab.base.say import step
from lab.host.facts import Host
from lab.image import store
from lab.nodes import network
from lab.nodes.files import File
from lab.nodes.node import Node
from launcher.base.errors import ExitCode, RingmasterError

_LABEL = "ringmaster.lab.registry"
_PORT = 5000
_SECONDS = 30
_SCRIPT = f"""
set -eu
mkdir -p /tls
if [ ! -e /tls/cert.pem ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 \\
        -subj "/CN=registry of the lab" -addext "subjectAltName=IP:$ADDRESS" \\
        -keyout /tls/key.pem -out /tls/part.pem 2>/dev/null
    mv /tls/part.pem /tls/cert.pem
fi
cat >/tls/config.yml <<END
version: 0.1
log: {{accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: /var/lib/docker-registry}}}}
http: {{addr: "0.0.0.0:{_PORT}", tls: {{certificate: /tls/cert.pem, key: /tls/key.pem}}}}
END
exec docker-registry serve /tls/config.yml
"""


@dataclass(frozen=True, kw_only=True)
class Registry:
    """Its address for the nodes, and the one for this machine's engine."""

    address: str
    push: str


def up(client: docker.DockerClient, place: Place, host: Host, nodes: Iterable[Node]) -> Registry:
    """Start the registry if it isn't running, and let every node trust it.

    Raises:
        RingmasterError: it doesn't answer.
    """
    container = _find(client, place)
    if container is None:
        with step("starting the registry"):
            container = _create(client, place, host)
    elif container.status != "running":
        container.start()
    deadline = time.monotonic() + _SECONDS
    while not _answers(container):
        if time.monotonic() > deadline:
            log = " ".join(container.logs(tail=3).decode(errors="replace").split())
            raise RingmasterError(f"the lab's registry does not answer: {log[-300:]}", exit_code=ExitCode.NOT_STARTED)
        time.sleep(0.2)
    registry = _describe(container, place)
    _, certificate = command.run(container, "cat", "/tls/cert.pem")
    for node in nodes:
        node.place({f"/etc/docker/certs.d/{registry.address}/ca.crt": File(content=certificate)})
    return registry


def down(client: docker.DockerClient, place: Place) -> None:
    """Remove the registry, if there is one."""
    container = _find(client, place)
    if container is not None:
        container.remove(force=True, v=True)


def find(client: docker.DockerClient, place: Place) -> Registry | None:
    """Return the registry, if it is running."""
    container = _find(client, place)
    return _describe(container, place) if container is not None and container.status == "running" else None


def _find(client: docker.DockerClient, place: Place) -> Container | None:
    labels = [f"{LABEL}={place.label}", _LABEL]
    return next(iter(client.containers.list(all=True, filters={"label": labels})), None)


def _create(client: docker.DockerClient, place: Place, host: Host) -> Container:
    net, subnet = network.provide(client, place, network.MAIN, host.mtu)
    started: Container = client.containers.run(  # type: ignore[call-overload]  # the stubs lag behind: ports may be None
        store.provide(client, "registry", host),
        ["sh", "-c", _SCRIPT],
        detach=True,
        name=f"ringmaster-{place.label}-registry",
        hostname="registry",
        labels={LABEL: place.label, _LABEL: "1"},
        environment={"ADDRESS": subnet.registry},
        ports={f"{_PORT}/tcp": ("127.0.0.1", None)},
        network=net.name,
        networking_config={str(net.name): client.api.create_endpoint_config(ipv4_address=subnet.registry)},
        restart_policy={"Name": "unless-stopped"},
    )
    return started


def _answers(container: Container) -> bool:
    return command.run(container, "curl", "-sfk", f"https://127.0.0.1:{_PORT}/v2/")[0] == 0


def _describe(container: Container, place: Place) -> Registry:
    container.reload()
    attached = next(iter(container.attrs["NetworkSettings"]["Networks"].values()))
    published = container.attrs["NetworkSettings"]["Ports"][f"{_PORT}/tcp"][0]["HostPort"]
    return Registry(address=f"{attached['IPAddress']}:{_PORT}", push=f"127.0.0.1:{published}")
