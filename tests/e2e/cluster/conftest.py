"""One lab, provisioned and with the image, for all tests of jobs on a cluster; a first job brings the image."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import lab
from lab.base.place import Place
from lab.lab import Lab
from lab.nodes import spec
from launcher.base.paths import ROOT
from tests.e2e.cluster.cluster import Cluster, finished, start_make, step
from tests.e2e.jobs import Job, Trainer
from tests.support.environment import kept

# Packets as small as in many a cloud: downloads through an engine's own network, of 1500 bytes, can stand still there.
WANTED = spec.lab(nodes=2, gpus=2, overrides=("node1:mtu=1400", "node2:mtu=1400"))
OWN = Place(name="cluster")
# Makes an address that no other node reaches the first of the interface: all jobs must take the second.
SECOND = """
case "$(ip -4 -o address show dev eth0)" in *192.0.2.2/32*) exit ;; esac
set -e
carried=$(ip -4 -o address show dev eth0 | awk '{print $4}') router=$(ip route show default | awk '{print $3}')
ip -4 address flush dev eth0
ip address add 192.0.2.2/32 dev eth0
ip address add "$carried" broadcast + dev eth0
ip route add default via "$router"
"""
Write = Callable[[str], Path]


@pytest.fixture(scope="session")
def machines(an_engine: None) -> Iterator[Lab]:
    """Two bare nodes, of which one has two addresses, made ready as a user does it."""
    try:
        with step("lab"):
            found = lab.up(WANTED, OWN, renew=() if kept() else [node.name for node in WANTED.nodes])
        found["node2"].run("sh", "-c", SECOND)
        with step("make provision"):
            done = finished(start_make("provision", ROOT, {"INVENTORY": OWN.inventory}))
        assert done.exit_code == 0, done.output
        yield found
    finally:
        if not kept():
            lab.down(OWN)


@pytest.fixture(scope="session")
def first_job(machines: Lab, train: Trainer) -> Job:
    """A bare cluster's second command: it builds the image, delivers it, and trains a model."""
    with step("make train"):
        return train(INVENTORY=OWN.inventory, NODES=2, ARGS="--dataset synthetic --epochs 1", timeout=2400)


@pytest.fixture(scope="session")
def cluster(machines: Lab, train: Trainer, first_job: Job) -> Cluster:
    assert first_job.exit_code == 0, first_job.output
    return Cluster(machines=machines, trainer=train)


@pytest.fixture(autouse=True)
def _no_job_goes_on(machines: Lab) -> Iterator[None]:
    """What a failed test leaves running must not be in the next one's way."""
    yield
    for name in machines.nodes:
        machines.ssh(name, "docker ps -aq --filter name=ringmaster-test- | xargs --no-run-if-empty docker rm -f")


@pytest.fixture
def program(tmp_path: Path) -> Write:
    """Write a user's script into a folder of its own, outside the repository."""

    def write(text: str) -> Path:
        path = tmp_path / "program" / "script.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write


@pytest.fixture
def second_checkout(tmp_path: Path, cluster: Cluster) -> Path:
    """The repository once more, whose inventory/hosts.yml is the lab; it borrows this one's packages."""
    checkout, venv = tmp_path / "second", tmp_path / "second" / ".venv"
    listed = ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, check=True, capture_output=True, text=True, timeout=60).stdout.split("\0"):
        if (ROOT / name).is_file():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, checkout / name)
    (venv / ".installed").mkdir(parents=True)
    for name in ("bin", "lib"):
        (venv / name).symlink_to(ROOT / ".venv" / name)
    (venv / ".installed" / "place").write_text(str(checkout))
    (venv / ".installed" / "control").write_text((checkout / "requirements/control.txt").read_text())
    place = cluster.machines.place
    (checkout / "inventory" / place.ssh_config.name).write_text(place.ssh_config.read_text())
    (checkout / "inventory" / "hosts.yml").write_text(place.inventory.read_text())
    return checkout
