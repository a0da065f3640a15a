"""Role train_image on the lab: one pull over the WAN (a registry beside the nodes), then along a chain that breaks."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from lab import registry
from lab.faults import links
from lab.host import engine, facts
from lab.lab import Lab
from lab.nodes.node import Node
from tests.support.provisioned import Provisioned, playbook, recap

pytestmark = [pytest.mark.timeout(900)]
ROLE = ("--tags", "train_image")
MIB = 24
BLOBS = "/var/lib/ringmaster/registry/blobs"
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

# Has the port that node3 needs, as the relay does that an interrupted delivery of another image has left.
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


class FailMidway(threading.Thread):
    """Nobody gets into the node any more once the node behind it has received something from it."""

    def __init__(self, middle: Node, behind: Node) -> None:
        super().__init__(daemon=True)
        self.middle, self.behind = middle, behind
        self.listening = ""
        self.received = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.received and not self.over.wait(0.1):
            shown = self.behind.run(
                "sh", "-c", f"du --bytes {BLOBS}/*.part 2>/dev/null | sort -n | tail -n 1", check=False
            )
            if shown and int(shown.split()[0]) > 1_000_000:
                self.listening = self.middle.run("sh", "-c", LISTENING)
                self.received = int(shown.split()[0])
                self.middle.run("sh", "-c", "systemctl stop ssh ssh.socket; pkill sshd", check=False)


def test_a_node_of_the_chain_that_fails_midway_costs_only_itself(provisioned: Provisioned, reference: str) -> None:
    machines = provisioned.machines
    machines["node3"].run(*_LEFT)
    chosen = ("-e", f"train_image_reference={reference}")
    begun = datetime.now(UTC)
    fault = FailMidway(machines["node2"], machines["node3"])
    try:
        with links.Shape(machines["node1"], rate="30mbit"):  # so slow that it is seen while it goes on
            fault.start()
            first = playbook(machines, "site.yml", *ROLE, *chosen)
    finally:
        fault.over.set()
        fault.join()
        machines["node2"].run("systemctl", "start", "ssh")

    assert fault.received
    assert "127.0.0.1:5870" in fault.listening
    assert len(fault.listening.strip().splitlines()) == 1
    counts = recap(first)
    assert {name: one["unreachable"] + one["failed"] for name, one in counts.items()} == {
        "node1": 0, "node2": 1, "node3": 0
    }, first.stdout  # fmt: skip
    assert "node3 went on without node2: " in " ".join(first.stdout.split())  # its YAML folds long lines
    assert pulled_by(machines, begun) == {machines["node1"].address}

    second = playbook(machines, "site.yml", *ROLE, *chosen)
    third = playbook(machines, "site.yml", *ROLE, *chosen)
    assert second.returncode == 0, second.stdout
    assert recap(second)["node2"]["changed"]
    assert all(counts["changed"] == 0 for counts in recap(third).values()), third.stdout
    assert pulled_by(machines, begun) == {machines["node1"].address}
    assert all(plain_registries(node) <= {"127.0.0.0/8", "::1/128"} for node in machines.nodes.values())
    ids = {
        node.run("docker", "images", "--quiet", "--no-trunc", "127.0.0.1:5870/*/*") for node in machines.nodes.values()
    }
    assert len(ids) == 1
    assert all(node.run("sh", "-c", LISTENING) == "" for node in machines.nodes.values())
    assert all(machines[name].run("ls", BLOBS) == "" for name in ("node2", "node3"))
    verified = playbook(machines, "verify.yml", *ROLE, *chosen)
    assert verified.returncode == 0, verified.stdout


def test_a_tag_is_not_run(provisioned: Provisioned) -> None:
    refused = playbook(provisioned.machines, "site.yml", *ROLE, "-e", "ringmaster_image=debian:12")
    assert refused.returncode != 0
    assert "names no digest" in refused.stdout
