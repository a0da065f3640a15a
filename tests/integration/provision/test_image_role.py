"""Role train_image on the lab: one pull over the WAN (a registry beside the nodes), a broken tunnel, nothing left."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from lab import registry
from lab.faults import links
from lab.host import engine, facts
from lab.image.recipe import USER
from lab.lab import Lab
from lab.nodes.node import Node
from tests.support.provisioned import Provisioned, playbook, recap

pytestmark = [pytest.mark.timeout(900)]
ROLE = ("--tags", "train_image")
MIB = 24
LISTENING = "ss -Hltn sport = :5870"
_MAKE = f"""
set -eu
head -c {MIB}M /dev/urandom >/tmp/content
tar -c -C /tmp content | docker import - {{name}} >/dev/null
rm /tmp/content
docker push --quiet {{name}} >/dev/null
docker image inspect --format '{{{{{{{{index .RepoDigests 0}}}}}}}}' {{name}}
docker image rm {{name}} >/dev/null
"""

# Has the port that node3 needs, as the registry does that an interrupted delivery of another image has left.
_LEFT = (
    "systemd-run", "--quiet", "--collect", "--unit=ringmaster-registry",
    "python3", "-m", "http.server", "5870", "--bind", "127.0.0.1",
)  # fmt: skip


@pytest.fixture
def wan(provisioned: Provisioned) -> Iterator[str]:
    """The address of a registry that only this module's image is in."""
    machines = provisioned.machines
    client = engine.needed()
    place = registry.up(client, machines.place, facts.read(), machines.nodes.values())
    yield place.address
    registry.down(client, machines.place)
    for node in machines.nodes.values():
        node.run("rm", "-r", "/etc/docker/certs.d")


@pytest.fixture
def reference(provisioned: Provisioned, wan: str) -> Iterator[str]:
    """An image by digest that is in that registry, and on no node."""
    machines = provisioned.machines
    made = machines["node2"].run("sh", "-c", _MAKE.format(name=f"{wan}/train:1"))
    yield made.splitlines()[0]
    assert playbook(machines, "reset.yml", *ROLE).returncode == 0


def pulled_by(machines: Lab, since: datetime) -> set[str]:
    """The addresses that have fetched layers from the registry."""
    container = engine.needed().containers.get(f"ringmaster-{machines.place.label}-registry")
    lines = container.logs(since=since).decode().splitlines()
    fetched = [line for line in lines if "http.request.method=GET" in line and "/blobs/" in line]
    return {line.partition('http.request.remoteaddr="')[2].partition(":")[0] for line in fetched}


def plain_registries(node: Node) -> set[str]:
    """The networks and registries that a node's engine would fetch images from without TLS."""
    known = json.loads(node.run("docker", "info", "--format", "{{json .RegistryConfig}}"))
    named = {name for name, settings in known["IndexConfigs"].items() if not settings["Secure"]}
    return named | set(known["InsecureRegistryCIDRs"])


class BreakTunnel(threading.Thread):
    """Kills a node's first tunnel, and sees where the registry listens meanwhile."""

    def __init__(self, source: Node, node: Node) -> None:
        super().__init__(daemon=True)
        self.source, self.node = source, node
        self.listening = ""
        self.killed = False
        self.over = threading.Event()

    def run(self) -> None:
        while not self.killed and not self.over.wait(0.1):
            if self.node.succeeds("sh", "-c", "ss -Htn state established dport = :5870 | grep -q ."):
                self.listening = self.source.run("sh", "-c", LISTENING)
                self.killed = self.node.succeeds("pkill", "-u", USER, "-f", "^ssh -T")


def test_every_node_gets_it_from_one_pull_through_a_tunnel_that_breaks(
    provisioned: Provisioned, reference: str
) -> None:
    machines = provisioned.machines
    machines["node3"].run(*_LEFT)
    chosen = ("-e", f"train_image_reference={reference}")
    begun = datetime.now(UTC)
    breaker = BreakTunnel(machines["node1"], machines["node3"])
    with links.Shape(machines["node1"], rate="30mbit"):  # so slow that the tunnel is seen, and still there to be killed
        breaker.start()
        try:
            first = playbook(machines, "site.yml", *ROLE, *chosen)
        finally:
            breaker.over.set()
    breaker.join()
    second = playbook(machines, "site.yml", *ROLE, *chosen)

    assert first.returncode == 0, first.stdout
    assert pulled_by(machines, begun) == {machines["node1"].address}
    assert breaker.killed
    assert "127.0.0.1:5870" in breaker.listening
    assert len(breaker.listening.strip().splitlines()) == 1
    assert all(counts["changed"] == 0 for counts in recap(second).values()), second.stdout
    assert all(plain_registries(node) <= {"127.0.0.0/8", "::1/128"} for node in machines.nodes.values())
    ids = {
        node.run("docker", "images", "--quiet", "--no-trunc", "127.0.0.1:5870/*/*") for node in machines.nodes.values()
    }
    assert len(ids) == 1
    assert all(node.run("sh", "-c", LISTENING) == "" for node in machines.nodes.values())
    verified = playbook(machines, "verify.yml", *ROLE, *chosen)
    assert verified.returncode == 0, verified.stdout


def test_a_tag_is_not_run(provisioned: Provisioned) -> None:
    refused = playbook(provisioned.machines, "site.yml", *ROLE, "-e", "ringmaster_image=debian:12")
    assert refused.returncode != 0
    assert "names no digest" in refused.stdout
