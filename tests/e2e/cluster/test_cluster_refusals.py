"""What can't go well is refused before the start: in a line with the node and the way out, and nothing is left."""

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from lab.faults import gpu_faults
from lab.nodes import gpus
from lab.nodes.node import Node
from launcher.job.rendezvous import PORTS
from tests.e2e.cluster.cluster import NODES, Cluster, await_, held_ports
from tests.e2e.jobs import Job

pytestmark = pytest.mark.timeout(3600)

Write = Callable[[str], Path]

_BRIEF = "--dataset synthetic --max-steps 2"
_SLEEPS = """
import os, time
with open(os.environ["RUN_DIR"] + "/metrics.jsonl", "a") as file:
    print('{"kind": "step", "step": 1}', file=file)
time.sleep(600)
"""
_NOTHING = "print('was here')\n"


@contextmanager
def untouched(cluster: Cluster) -> Iterator[None]:
    """Nothing is left on any node by what is done meanwhile."""
    before = cluster.traces()
    yield
    assert cluster.traces() == before


@contextmanager
def older_cards(node: Node) -> Iterator[None]:
    """The node has GPUs that the image has no code for."""
    gpus.set_gpus(node, count=2, model="Tesla V100-SXM2-16GB")
    try:
        yield
    finally:
        gpus.reset(node)


def assert_refused(job: Job, *says: str) -> None:
    """It was refused before the start, and said why."""
    assert job.exit_code == 3, job.output
    for words in says:
        assert words in job.output, job.output
    assert not job.folder.exists()


def test_of_two_jobs_at_the_same_moment_one_runs_and_the_next_is_told_which(cluster: Cluster, program: Write) -> None:
    script = program(_SLEEPS)
    before = cluster.traces()
    for _ in range(3):  # each may win one of the nodes: both give way then, and are tried again (decision 0022)
        both = [cluster.start(SCRIPT=script), cluster.start(SCRIPT=script)]
        await_(lambda: any(each.process.poll() is not None for each in both))  # noqa: B023 - called at once
        lost, won = sorted(both, key=lambda each: each.process.poll() is None)
        job = lost.ended()
        await_(lambda: won.process.poll() is not None or (won.job.folder / "metrics.jsonl").exists())  # noqa: B023
        if won.process.poll() is None:
            break
    assert job.exit_code == 3, job.output
    assert won.job.name in job.output
    after = cluster.traces()
    for node in NODES:
        assert len(after[node][0]) == len(before[node][0]) + 1
        assert set(after[node][1]) - set(before[node][1]) == {won.job.name}
    with untouched(cluster):
        refused = cluster.train(ARGS=_BRIEF)
    assert_refused(refused, f"job {won.job.name} runs there", f"make stop NAME={won.job.name}")
    stopped = cluster.make("stop")
    assert stopped.exit_code == 0, stopped.output
    assert won.ended().exit_code == 143
    cluster.assert_nothing_runs(won.job)


def test_two_jobs_run_at_once_where_each_has_gpus_of_its_own(cluster: Cluster, program: Write) -> None:
    first = cluster.train(SCRIPT=program(_SLEEPS), GPUS="0,", DETACH=1)
    assert first.exit_code == 0, first.output
    second = cluster.train(ARGS=_BRIEF, GPUS="1,")
    assert second.exit_code == 0, second.output
    assert [node["devices"] for job in (first, second) for node in job.plan["nodes"]] == [["0"], ["0"], ["1"], ["1"]]
    found = cluster.containers(first.name)
    for node in NODES:
        (container,) = found[node]
        assert container["State"]["Running"]
        (asked,) = container["HostConfig"]["DeviceRequests"]
        assert (asked["Count"], asked["DeviceIDs"]) == (0, ["0"])
    with untouched(cluster):
        assert_refused(cluster.train(ARGS=_BRIEF, GPUS="0,"), "node1", f"job {first.name} runs there on GPU 0")
    stopped = cluster.make("stop", NAME=first.name)
    assert stopped.exit_code == 0, stopped.output
    cluster.assert_nothing_runs(first)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (lambda node: gpu_faults.MissingGpu(node, 1), "the inventory promises 2 GPUs"),
        (lambda node: gpu_faults.BusyGpu(node, 0), "GPU 0 is held by python3"),
        (lambda node: gpu_faults.OldDriver(node, "535.183.01"), "driver 535.183.01 is too old"),
        (lambda node: older_cards(node), "GPU 0, 1 (Tesla V100-SXM2-16GB) has compute capability 7.0, the image has"),
    ],
)
def test_gpus_that_are_not_as_promised(
    cluster: Cluster, tmp_path: Path, fault: Callable[[Node], AbstractContextManager[object]], says: str
) -> None:
    inventory = cluster.inventory_with(tmp_path / "inventory", ("  vars:\n", "  vars:\n    ringmaster_gpus: 2\n"))
    with fault(cluster.machines["node2"]), untouched(cluster):
        job = cluster.train(ARGS=_BRIEF, INVENTORY=inventory)
    assert_refused(job, "ringmaster: node2: ", says)


def test_no_port_is_free(cluster: Cluster) -> None:
    with held_ports(cluster, PORTS), untouched(cluster):
        job = cluster.train(ARGS=_BRIEF)
    assert_refused(job, f"every port from {PORTS.start} to {PORTS.stop - 1} on node1 is in use", "ss -ltnp")


def test_an_image_that_one_node_lacks_is_brought_before_the_job(cluster: Cluster) -> None:
    image, node = cluster.image, "node2"
    # What the image is made of stays, under another name: to bring 6 GB again would prove nothing more.
    cluster.ssh(node, "docker", "tag", image, "ringmaster-test-base")
    keep = (
        "echo FROM ringmaster-test-base | DOCKER_BUILDKIT=1 docker build --quiet --label=a=b -t ringmaster-test-kept -"
    )
    cluster.ssh(node, "sh", "-c", keep)
    try:
        cluster.ssh(node, "docker", "image", "rm", "--force", image)
        with untouched(cluster):
            dry = cluster.train(ARGS=_BRIEF, GPUS=1, DRY_RUN=1)
        assert dry.exit_code == 0, dry.output
        assert "node2: the image is not there: make train would deliver it to node2" in dry.output
        job = cluster.train(ARGS=_BRIEF, GPUS=1)
        assert job.exit_code == 0, job.output
        assert "node2: the image is not there: first, deliver it to node2" in job.output
        assert cluster.image_on(node)["Id"] == image
    finally:
        cluster.ssh(node, "docker", "image", "rm", "--force", "ringmaster-test-kept")


def test_planned_gpus_that_the_container_does_not_see_are_not_replaced_by_the_cpu(
    cluster: Cluster, program: Write, tmp_path: Path
) -> None:
    text = "    ringmaster_backend: gloo  # the GPUs, where there are any, are stand-ins\n"
    inventory = cluster.inventory_with(tmp_path / "inventory", (text, ""))
    job = cluster.train(SCRIPT=program(_NOTHING), GPUS=1, NODES=1, INVENTORY=inventory)
    assert job.exit_code == 3, job.output
    assert "1 GPU(s) are planned for this node, the container sees none" in job.output
    assert "was here" not in job.output
    assert cluster.containers(job.name) == {node: [] for node in NODES}


def test_nccl_would_take_another_address_than_the_clusters(cluster: Cluster, tmp_path: Path) -> None:
    """node2's is the second of its interface, which Gloo finds by the host name: all other tests show that."""
    text = "    ringmaster_backend: gloo  # the GPUs, where there are any, are stand-ins\n"
    inventory = cluster.inventory_with(tmp_path / "inventory", (text, ""))
    with untouched(cluster):
        job = cluster.train(ARGS=_BRIEF, INVENTORY=inventory)
    assert_refused(job, "ringmaster: node2: NCCL would take 192.0.2.2, which comes first on eth0")
    refused = cluster.make("provision", INVENTORY=inventory)
    assert refused.exit_code == 3, refused.output
    assert "node2: NCCL would take 192.0.2.2" in refused.output


def test_a_node_with_another_host_key_is_not_spoken_to(cluster: Cluster, tmp_path: Path) -> None:
    inventory = cluster.inventory_with(tmp_path / "inventory")
    place = cluster.machines.place
    pinned = place.known_hosts.read_text().splitlines()
    swapped = tmp_path / "swapped"
    swapped.write_text("".join(f"{line.rsplit(' ', 1)[0]} {pinned[0].split()[-1]}\n" for line in pinned))
    config = inventory.with_name(place.ssh_config.name)
    config.write_text(config.read_text().replace(str(place.known_hosts), str(swapped)))
    listed = subprocess.run(
        ["ssh-keygen", "-l", "-f", place.known_hosts], capture_output=True, text=True, check=True, timeout=20
    )
    expected, shown = re.findall(r"SHA256:\S+", listed.stdout)
    with untouched(cluster):
        job = cluster.train(ARGS=_BRIEF, INVENTORY=inventory)
    assert_refused(job, "ringmaster: node2: not reached")
    status = cluster.make("status", INVENTORY=inventory)
    for output in (job.output, status.output):
        (row,) = [line for line in output.splitlines() if line.strip().startswith("node2")]
        assert f"shows {shown}, pinned is {expected}" in row
        assert row.split()[2] == "CHANGED"
    assert "node2" not in status.output.rpartition("nodes\n")[2], "only what node1 knows"
