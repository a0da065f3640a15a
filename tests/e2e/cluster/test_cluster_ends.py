"""A job that nobody followed has failed: what is said of it when its containers are gone, and when a disk is full."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lab.faults.node_faults import FillDisk
from tests.e2e.cluster.cluster import NODES, Cluster, await_, step
from tests.e2e.jobs import Job

pytestmark = pytest.mark.timeout(3600)

Write = Callable[[str], Path]

_FAILS = """
import os, sys
print("hello from", os.environ["RANK"], flush=True)
sys.exit(3)
"""
_JOBS = "/var/lib/ringmaster/jobs"


def test_a_job_whose_containers_were_pruned_is_unknown_and_not_a_success(cluster: Cluster, program: Write) -> None:
    job = left_alone(cluster, program)
    for node in NODES:
        cluster.ssh(node, "docker", "container", "prune", "-f", "--filter", f"label=ringmaster.job={job.name}")
    assert state_of(cluster, job) == "unknown"
    for _ in range(2):
        told = cluster.make("logs", NAME=job.name)
        assert told.exit_code == 4, told.output
        assert "nobody knows how the job ended (node1, node2: container gone)" in told.output
        assert (job.summary["state"], job.summary["exit_code"]) == ("unknown", 4)
    stopped = cluster.make("stop", NAME=job.name)
    assert stopped.exit_code == 4, stopped.output
    assert state_of(cluster, job) == "unknown"


def test_a_failure_stays_one_where_the_disk_has_no_room_to_record_it(cluster: Cluster, program: Write) -> None:
    job = left_alone(cluster, program)
    with step("disk full"), FillDisk(node=cluster.machines["node2"]):
        full = cluster.make("logs", NAME=job.name)
    assert full.exit_code == 1, full.output
    assert "node2: how the job ended could not be recorded there" in full.output
    assert {node: len(found) for node, found in cluster.containers(job.name).items()} == {"node1": 0, "node2": 1}
    assert "collected" not in cluster.ssh("node2", "ls", f"{_JOBS}/{job.name}").split()
    (job.folder / "summary.json").unlink()  # as if another machine looked next
    for _ in range(2):
        told = cluster.make("logs", NAME=job.name)
        assert told.exit_code == 1, told.output
        assert job.summary["state"] == "failed"
        cluster.assert_nothing_runs(job)
    for node in NODES:
        assert '"state": "failed"' in cluster.ssh(node, "cat", f"{_JOBS}/{job.name}/summary.json")


def left_alone(cluster: Cluster, program: Write) -> Job:
    """A job that has failed on both nodes, and that nobody followed."""
    job = cluster.train(SCRIPT=program(_FAILS), GPUS=0, DETACH=1)
    assert job.exit_code == 0, job.output
    await_(lambda: all(one["State"]["Status"] == "exited" for (one,) in cluster.containers(job.name).values()))
    assert state_of(cluster, job) == "ended, not fetched"
    return job


def state_of(cluster: Cluster, job: Job) -> str:
    """Its state in `make status`, whose columns have two spaces between them."""
    (row,) = [line for line in cluster.make("status").output.splitlines() if line.startswith(job.name)]
    return row.split("  ")[1].strip()
