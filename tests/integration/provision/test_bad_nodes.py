"""Nodes that are down, changed or unfit: `fab provision` names each, and finishes or touches nothing."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.faults import gpu_faults, node_faults
from lab.lab import Lab
from lab.nodes import gpus
from lab.nodes.node import Node
from launcher.base.paths import ROOT
from tests.integration.provision import snapshot
from tests.support.provisioned import playbook, recap

pytestmark = [pytest.mark.timeout(600)]


def front_door(verb: str, inventory: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a verb as make does, and return both its streams in one."""
    return subprocess.run(
        [ROOT / ".venv/bin/fab", verb, f"--inventory={inventory}", *words],
        cwd=ROOT, text=True, timeout=400, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip


@contextmanager
def without(machines: Lab, *nodes: Node) -> Iterator[None]:
    """Prove that these nodes are as they were before."""
    before = {node.name: snapshot.take(node) for node in nodes}
    yield
    for node in nodes:
        assert snapshot.differences(before[node.name], snapshot.take(node), snapshot.allowed()) == []


def test_a_node_that_is_down_does_not_stop_the_others(machines: Lab) -> None:
    with node_faults.Kill(machines["node3"]):
        done = front_door("provision", machines.place.inventory)
        assert done.returncode == 5, done.stdout[-3000:]
        assert {name: one["failed"] for name, one in recap(done).items()} == {"node1": 0, "node2": 0}
        assert any(line.strip().startswith("node3") and "down" in line for line in done.stdout.splitlines())
        assert done.stdout.splitlines()[-1] == "ringmaster: exit 5 (some nodes could not be provisioned)"
        assert all(one["changed"] == 0 for one in recap(done).values())  # node3 keeps its place in the mesh
        verified = front_door("verify", machines.place.inventory)
        assert verified.returncode == 3
        assert any(line.strip().startswith("node3") for line in verified.stdout.splitlines())
    assert playbook(machines, "verify.yml").returncode == 0


def test_verify_is_one_line_per_node(machines: Lab) -> None:
    done = front_door("verify", machines.place.inventory)
    assert done.returncode == 0, done.stdout
    for name in machines.nodes:
        assert len([line for line in done.stdout.splitlines() if line.strip().startswith(name)]) == 1


def test_a_key_that_is_not_accepted_stops_before_anything(machines: Lab, tmp_path: Path) -> None:
    key = tmp_path / "another"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    config = machines.place.ssh_config.read_text().replace(str(machines.place.key), str(key))
    (tmp_path / machines.place.ssh_config.name).write_text(config)
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(machines.place.inventory.read_text())
    with without(machines, *machines.nodes.values()):
        done = front_door("provision", inventory)
    assert done.returncode == 3, done.stdout
    assert all(any(line.strip().startswith(name) for line in done.stdout.splitlines()) for name in machines.nodes)


def test_a_changed_host_key_is_explained_and_refused(machines: Lab, tmp_path: Path) -> None:
    lines = machines.place.known_hosts.read_text().splitlines()
    others = tmp_path / "known_hosts"
    others.write_text("".join(f"{line.rsplit(' ', 1)[0]} {lines[-1].split()[-1]}\n" for line in lines))
    config = machines.place.ssh_config.read_text().replace(str(machines.place.known_hosts), str(others))
    (tmp_path / machines.place.ssh_config.name).write_text(config)
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(machines.place.inventory.read_text())
    with without(machines, machines["node1"]):
        done = front_door("provision", inventory, "--trust=1")
    assert done.returncode == 3, done.stdout
    assert done.stdout.count("SHA256:") >= 2
    # Without the front door Ansible refuses as well.
    bare = subprocess.run(
        [ROOT / ".venv/bin/ansible-playbook", "-i", inventory, ROOT / "playbooks/site.yml", "--limit", "node1"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
        env={**os.environ, "ANSIBLE_SSH_CONTROL_PATH_DIR": str(tmp_path / "cp")},
    )  # fmt: skip
    assert bare.returncode != 0
    assert recap(bare)["node1"]["unreachable"] == 1


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (lambda node: gpu_faults.MissingGpu(node, 1), "promises 2 GPUs"),
        (lambda node: gpu_faults.OldDriver(node, "470.82.01"), "driver 470.82.01 is too old"),
        (lambda node: gpu_faults.BusyGpu(node, 0), "held by"),
    ],
)
def test_gpus_that_are_not_as_promised(machines: Lab, tmp_path: Path, fault: object, says: str) -> None:
    node = machines["node2"]
    (tmp_path / machines.place.ssh_config.name).write_text(machines.place.ssh_config.read_text())
    inventory = tmp_path / "inventory.yml"
    text = machines.place.inventory.read_text()
    inventory.write_text(text.replace("    node2:\n", "    node2:\n      ringmaster_gpus: 2\n"))
    gpus.set_gpus(node, count=2)
    try:
        with fault(node), without(machines, machines["node1"]):  # type: ignore[operator]
            done = front_door("provision", inventory)
            assert done.returncode == 3, done.stdout
            rows = [line.split(None, 3) for line in done.stdout.splitlines() if line.strip().startswith("node")]
            states = {name: (state, why) for name, _, state, why in rows[-3:]}
            assert {name: state for name, (state, _) in states.items()} == {
                "node1": "ok", "node2": "refused", "node3": "ok",
            }, done.stdout  # fmt: skip
            assert says in states["node2"][1]
    finally:
        gpus.set_gpus(node, count=0)
