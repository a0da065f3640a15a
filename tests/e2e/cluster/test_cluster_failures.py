"""Something breaks in a job on a cluster: all of it stops at once, and one box says which node, which rank, and why."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from launcher.job.rendezvous import PORTS
from tests.e2e.cluster.cluster import NODES, Cluster, Running, held_ports, step
from tests.e2e.jobs import Job

pytestmark = pytest.mark.timeout(3600)

Write = Callable[[str], Path]

# The other rank waits for the one that fails, as ranks do.
_FAILS = """
import os, sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
if dist.get_rank() == 1:
    print("fails at", time.time(), flush=True)
    {fault}
dist.barrier()
time.sleep(600)
"""
# Rank 1 takes what there is as soon as there is a limit to it.
_GROWS = """
import os, time
def limit():
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        if os.path.exists(path):
            return int(open(path).read().replace("max", str(1 << 62)))
    return 1 << 62
with open(os.environ["RUN_DIR"] + "/waits", "w"):
    pass
while os.environ["RANK"] == "0" or limit() > 1 << 30:
    time.sleep(0.1)
print("fails at", time.time(), flush=True)
kept = []
while True:
    kept.append(b"x" * (32 << 20))
"""
_STOPPED_WITHIN_S = 15
"""The promise is 5 s, on machines of their own; here two nodes, their engines and the test share this machine."""


def test_a_rank_that_raises_is_named_with_its_exception(cluster: Cluster, program: Write) -> None:
    free = PORTS[4321]
    with held_ports(cluster, set(PORTS) - {free, free + 1}):  # the next is for a program that starts its own processes
        job = cluster.train(GPUS=1, SCRIPT=program(_FAILS.format(fault="raise ValueError('boom in rank 1')")))
    assert job.plan["port"] == free, "the only one, with the next, that nobody listened at"
    assert job.exit_code == 1, job.output
    assert "ringmaster: exit 1 (failed)" in job.output.splitlines()[-2:]
    failure = job.summary["failure"]
    assert job.summary["state"] == "failed"
    assert (failure["node"], failure["rank"], failure["exit_code"], failure["signal"]) == ("node2", 1, 1, None)
    assert failure["reason"] == "ValueError: boom in rank 1"
    assert "FAILED: node2 rank 1: ValueError: boom in rank 1" in job.output
    assert_stopped(cluster, job, failed=said_in(job))


def test_a_rank_that_is_killed_is_named_with_its_signal(cluster: Cluster, program: Write) -> None:
    job = cluster.train(GPUS=1, SCRIPT=program(_FAILS.format(fault="os.kill(os.getpid(), 9)")))
    assert job.exit_code == 1, job.output
    failure = job.summary["failure"]
    assert (failure["node"], failure["rank"], failure["signal"]) == ("node2", 1, "SIGKILL")
    assert "FAILED: node2 rank 1: killed by SIGKILL" in job.output
    assert_stopped(cluster, job, failed=said_in(job))


def test_a_node_without_memory_is_named_with_its_limit(cluster: Cluster, program: Write) -> None:
    running = at_work(cluster, program)
    limit = ("docker", "update", "--memory=600m", "--memory-swap=600m")
    cluster.ssh("node2", *limit, f"ringmaster-{running.job.name}")
    with step("out of memory"):
        job = running.ended()
    assert job.exit_code == 1, job.output
    assert (job.summary["failure"]["node"], job.summary["failure"]["rank"]) == ("node2", 1)
    assert job.summary["failure"]["reason"] == "out of memory on node2 (limit 600 MiB)"
    assert "FAILED: node2 rank 1: out of memory on node2 (limit 600 MiB)" in job.output
    # Not since it began to take memory: the kernel gives up much else before it ends a process.
    assert_stopped(cluster, job, failed=cluster.moments("node2", job.name, "oom")[0])


def test_a_container_that_is_killed_is_the_clusters_failure(cluster: Cluster, program: Write) -> None:
    running = at_work(cluster, program)
    cluster.ssh("node2", "docker", "kill", f"ringmaster-{running.job.name}")
    job = running.ended()
    assert job.exit_code == 4, job.output
    assert (job.summary["failure"]["node"], job.summary["failure"]["rank"]) == ("node2", None)
    assert "FAILED: node2: killed by SIGKILL" in job.output
    assert_stopped(cluster, job, failed=cluster.moments("node2", job.name, "die")[0])


def at_work(cluster: Cluster, program: Write) -> Running:
    """A job of which both ranks wait."""
    running = cluster.start(GPUS=1, SCRIPT=program(_GROWS))
    run = f"/var/lib/ringmaster/jobs/{running.job.name}/run"
    with step("until both ranks wait"):
        running.until(lambda: all(cluster.machines.ssh(node, f"ls {run}/waits").stdout for node in NODES))
    return running


def said_in(job: Job) -> float:
    """When the rank that fails did, as it said."""
    return float(next(line for line in job.lines_of("node2:1") if line.startswith("fails at")).split()[-1])


def assert_stopped(cluster: Cluster, job: Job, failed: float) -> None:
    """Nothing is left of the job, and its containers ended soon after the failure."""
    ended = max(cluster.moments(node, job.name, "die")[-1] for node in NODES)
    print(f"all ended {ended - failed:.1f} s after the failure")
    assert ended - failed < _STOPPED_WITHIN_S
    told = datetime.fromisoformat(job.summary["started_at"]).timestamp() + job.summary["wall_s"]
    assert told - failed < 60, "and what was written comes home, and the box is shown"
    cluster.assert_nothing_runs(job)
