"""The GPU stand-ins, their misbehaviour, and the real engine that accepts them. The registry, as nodes use it."""

import time

import pytest

from lab import registry
from lab.faults import gpu_faults
from lab.host import engine, facts
from lab.lab import Lab
from lab.nodes import gpus
from lab.nodes.node import Node
from tests.integration.lab import small_image

# The first test of all builds the images.
pytestmark = pytest.mark.timeout(600)
_QUERY = ("nvidia-smi", "--query-gpu=index,name,memory.total,driver_version", "--format=csv,noheader,nounits")
_RUN = ("docker", "run", "--rm", "--gpus", "all", "--network", "host", small_image.NAME, "true")


@pytest.fixture
def node(shared_lab: Lab) -> Node:
    return shared_lab["node1"]


def test_what_nvidia_smi_says(shared_lab: Lab) -> None:
    listed = shared_lab.ssh("node1", "nvidia-smi -L").stdout.splitlines()
    assert len(listed) == 2
    assert listed[0].startswith("GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-")
    rows = shared_lab.ssh("node1", " ".join(_QUERY)).stdout.splitlines()
    assert rows == [f"{index}, NVIDIA A100-SXM4-80GB, 81920, 580.95.05" for index in range(2)]


def test_its_query_formats(node: Node) -> None:
    with_header = node.run("nvidia-smi", "--query-gpu=memory.used,utilization.gpu", "--format=csv", "-i", "1")
    assert with_header == "memory.used [MiB], utilization.gpu [%]\n4 MiB, 0 %\n"
    assert node.run("nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader") == ""
    assert "is not a valid field" in node.run("nvidia-smi", "--query-gpu=nonsense", "--format=csv", check=False)
    assert "CUDA Version: 13.0" in node.run("nvidia-smi")


def test_the_engine_takes_gpus_with_the_stand_in_and_not_without(node: Node) -> None:
    small_image.provide(node)
    node.run(*_RUN)
    gpus.set_toolkit(node, present=False)
    try:
        said = node.run(*_RUN, check=False)
        assert 'could not select device driver "" with capabilities: [[gpu]]' in said
    finally:
        gpus.set_toolkit(node, present=True)
    node.run(*_RUN)


def test_set_and_reset(node: Node) -> None:
    try:
        gpus.set_gpus(node, count=1, model="NVIDIA H100 80GB HBM3", driver="570.133.20")
        assert node.run(*_QUERY) == "0, NVIDIA H100 80GB HBM3, 81559, 570.133.20\n"
        with gpu_faults.OldDriver(node):
            pass
        assert "570.133.20" in node.run(*_QUERY)  # what was set, not what the node began with
        gpus.set_gpus(node, count=0)
        assert not node.succeeds("sh", "-c", "command -v nvidia-smi")
    finally:
        gpus.reset(node)  # as `make lab` does
    assert len(node.run("nvidia-smi", "-L").splitlines()) == 2
    assert "A100-SXM4-80GB, 81920, 580.95.05" in node.run(*_QUERY)


def test_a_missing_gpu(node: Node) -> None:
    with gpu_faults.MissingGpu(node, gpu=1):
        assert len(node.run("nvidia-smi", "-L").splitlines()) == 1
        with gpu_faults.MissingGpu(node, gpu=0):
            assert "No devices were found" in node.run("nvidia-smi", "-L", check=False)
        assert len(node.run("nvidia-smi", "-L").splitlines()) == 1
    assert len(node.run("nvidia-smi", "-L").splitlines()) == 2


def test_an_old_driver_and_none(node: Node) -> None:
    with gpu_faults.OldDriver(node, version="535.183.01"):
        assert "535.183.01" in node.run(*_QUERY)
    with gpu_faults.NoDriver(node):
        assert "couldn't communicate with the NVIDIA driver" in node.run("nvidia-smi", check=False)
        assert not node.succeeds("nvidia-smi", "-L")
    assert "580.95.05" in node.run(*_QUERY)


def test_a_busy_gpu(node: Node) -> None:
    query = ("nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader,nounits")
    with gpu_faults.BusyGpu(node, mib=1000):
        assert node.run(*query) == "4242, python3, 1000\n"
    assert node.run(*query) == ""


def test_an_xid_in_one_nodes_log(shared_lab: Lab, node: Node) -> None:
    with gpu_faults.Xid(node, code=79):
        assert "NVRM: Xid (PCI:0000:10:00): 79" in shared_lab.ssh("node1", "sudo dmesg").stdout
        assert "NVRM: Xid" not in shared_lab.ssh("node2", "sudo dmesg").stdout
        year = time.strftime("%Y]")
        assert f"{year} NVRM: Xid" in shared_lab.ssh("node1", "sudo dmesg -T").stdout
        assert shared_lab.ssh("node1", "sudo dmesg --no-such-option").returncode != 0
    assert "NVRM: Xid" not in shared_lab.ssh("node1", "sudo dmesg").stdout


def test_a_registry_that_nodes_push_to_and_pull_from(shared_lab: Lab) -> None:
    client, place = engine.needed(), shared_lab.place
    pusher, puller = shared_lab["node1"], shared_lab["node2"]
    there = registry.up(client, place, facts.read(), [pusher, puller])
    try:
        name = f"{there.address}/base"
        pusher.run("docker", "tag", small_image.provide(pusher), name)
        pusher.run("docker", "push", "-q", name)
        pinned = pusher.run("docker", "image", "inspect", "-f", "{{index .RepoDigests 0}}", name).strip()
        puller.run("docker", "pull", "-q", pinned)
        puller.run("docker", "run", "--rm", pinned, "true")
    finally:
        registry.down(client, place)
    assert registry.find(client, place) is None
