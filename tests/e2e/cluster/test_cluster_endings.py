"""Endings planted on a cluster: a node is told to go, frozen, full, its clock is wrong, its engine's log is torn."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.faults.node_faults import ClockOffset, FillDisk
from tests.e2e.cluster.cluster import NODES, Cluster, await_, step
from tests.e2e.cluster.test_cluster_operator import assert_no_step_lost
from tests.e2e.endings.ending import Expected
from tests.e2e.endings.verdict import Name, verdict
from tests.e2e.jobs import Job

pytestmark = pytest.mark.timeout(3600)

Write = Callable[[str], Path]

_ENDLESS = "--dataset synthetic --epochs 5000 --batch-size 64"
_TOLD = r"node2\b.*\b(told|SIGTERM)"
_PATIENT_FOR_5_S = """
import json, os, time
from datetime import timedelta
import torch, torch.distributed as dist
dist.init_process_group("gloo")
group = dist.new_group(timeout=timedelta(seconds=5))
for step in range(1, 1 << 30):
    dist.all_reduce(torch.ones(1), group=group)
    if dist.get_rank() == 0:
        with open(os.environ["RUN_DIR"] + "/metrics.jsonl", "a") as file:
            print(json.dumps({"kind": "step", "step": step}), file=file)
    time.sleep(0.2)
"""
# Rank 0 fails a second after rank 1, and says nothing of it; then both end at once: only the time tells who was first.
_ONE_AFTER_THE_OTHER = """
import os, sys, time, traceback
import torch.distributed as dist
rank = int(os.environ["RANK"])
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)

def fail(*trouble):
    traceback.print_exception(*trouble)
    store.set(f"failed {rank}", "1")
    store.wait([f"failed {1 - rank}"])
    os._exit(1)

sys.excepthook = fail
store.set(f"clock {rank}", str(time.time()))
store.wait(["clock 0", "clock 1"])
if rank == 1:
    print("ahead by", float(store.get("clock 1")) - float(store.get("clock 0")), flush=True)
    raise ValueError("bad batch 5")
store.wait(["failed 1"])
time.sleep(1)
raise SystemError("the epoch could not be finished")
"""
# Rank 1 prints on behind the tear, and fails.
_FAILS_BEHIND_THE_TEAR = """
import os, time
run = os.environ["RUN_DIR"]
print("in front of the tear", flush=True)
open(run + "/waits", "w").close()
while not os.path.exists(run + "/torn"):
    time.sleep(0.1)
for number in range(100):
    print("behind the tear", number, flush=True)
if os.environ["RANK"] == "1":
    raise ValueError("bad batch 6")
"""


def test_a_node_whose_engine_stops_the_container_was_told_to_go(cluster: Cluster) -> None:
    running = cluster.start(ARGS=_ENDLESS)
    running.await_steps()
    cluster.ssh("node2", "docker", "stop", "--time=60", f"ringmaster-{running.job.name}")
    job = running.ended()
    assert (job.summary["state"], job.exit_code, job.summary["failure"]) == ("stopped", 143, None), job.output
    assert re.search(_TOLD, own_lines(job)), job.output
    assert_no_step_lost(job.folder)
    cluster.assert_nothing_runs(job)


def test_nobody_follows_when_a_node_is_told_to_go(cluster: Cluster) -> None:
    job = cluster.train(ARGS=_ENDLESS, DETACH=1)
    with step("until the first steps"):
        await_(lambda: cluster.steps_on_head(job.name) > 2)
    cluster.ssh("node2", "docker", "stop", "--time=60", f"ringmaster-{job.name}")
    with step("until all have ended"):
        await_(
            lambda: (
                not any(each["State"]["Running"] for found in cluster.containers(job.name).values() for each in found)
            )
        )
    said = cluster.make("logs", NAME=job.name).output
    assert (job.summary["state"], job.summary["failure"]) == ("stopped", None), said
    assert re.search(_TOLD, own_lines(Job(name=job.name, output=said))), said
    assert_no_step_lost(job.folder)
    cluster.assert_nothing_runs(job)


def test_a_frozen_container_is_not_blamed_on_its_victim(cluster: Cluster, program: Write) -> None:
    running = cluster.start(SCRIPT=program(_PATIENT_FOR_5_S), GPUS=1)
    running.await_steps()
    cluster.ssh("node2", "docker", "pause", f"ringmaster-{running.job.name}")
    job = running.ended()
    assert_told(job, Expected(culprits=(("node2", 1), ("node2", None)), provable=False))
    cluster.assert_nothing_runs(job)


def test_a_clock_that_is_ahead_makes_nobody_guilty(cluster: Cluster, program: Write, tmp_path: Path) -> None:
    node2 = cluster.machines["node2"]
    library = "/var/lib/ringmaster/data/libfaketime.so"
    shifted = "{LD_PRELOAD: /job/data/libfaketime.so, FAKETIME: '+30s', FAKETIME_DONT_FAKE_MONOTONIC: '1'}"
    (line,) = re.findall(r"^    node2:\n      ansible_host: .*\n", cluster.inventory.read_text(), re.MULTILINE)
    inventory = cluster.inventory_with(tmp_path / "inventory", (line, f"{line}      ringmaster_comm_env: {shifted}\n"))
    node2.run("install", "-m", "644", "-o", "ops", "/usr/lib/ringmaster-lab/libfaketime.so", library)
    try:
        with ClockOffset(node2, seconds=30):  # what a login sees; the container's clock is the inventory's
            job = cluster.train(SCRIPT=program(_ONE_AFTER_THE_OTHER), GPUS=1, INVENTORY=inventory)
    finally:
        node2.run("rm", library)
    (ahead,) = re.findall(r"^node2:1 \| ahead by (\S+)", job.output, re.MULTILINE)
    assert float(ahead) > 20, "the fault is there"
    assert_told(job, Expected(culprits=(("node2", 1),), reason=("ValueError: bad batch 5",)))
    cluster.assert_nothing_runs(job)


def test_a_failure_behind_a_tear_in_the_engines_log_is_none_in_front_of_it(cluster: Cluster, program: Write) -> None:
    job = cluster.train(SCRIPT=program(_FAILS_BEHIND_THE_TEAR), GPUS=1, DETACH=1)
    run = f"/var/lib/ringmaster/jobs/{job.name}/run"
    await_(lambda: all(cluster.machines.ssh(node, f"ls {run}/waits").returncode == 0 for node in NODES))
    (container,) = cluster.containers(job.name)["node2"]
    cluster.machines["node2"].run("sh", "-c", f"head -c 300 /dev/zero >>{container['LogPath']}")
    for node in NODES:
        cluster.ssh(node, "touch", f"{run}/torn")
    with step("until the rank has failed"):
        await_(lambda: not runs(cluster.containers(job.name)["node2"]))
    said = Job(name=job.name, output=cluster.make("logs", NAME=job.name).output)
    assert_told(said, Expected(culprits=(("node2", 1),), reason=("ValueError: bad batch 6",)))
    cluster.assert_nothing_runs(job)


def test_a_last_checkpoint_for_which_there_is_no_room_is_told_each_time(cluster: Cluster) -> None:
    running = cluster.start(ARGS=_ENDLESS)
    running.await_steps()
    with FillDisk(cluster.machines["node1"]):
        running.interrupt()
        job = running.ended()
        assert job.exit_code == 4, job.output
        again = cluster.make("logs", NAME=job.name)
        assert again.exit_code == 4, again.output
    later = cluster.make("logs", NAME=job.name)
    assert later.exit_code == 4, later.output
    cluster.assert_nothing_runs(job)


def assert_told(job: Job, expected: Expected) -> None:
    """The job's end is told as it was."""
    assert job.folder.exists(), job.output
    found = verdict(expected, job.summary, own_lines(job))
    print(found.told)
    assert found.name in {Name.RIGHT, Name.SUSPECT, Name.UNKNOWN} and found.complaints == (), job.output


def runs(containers: list[dict[str, Any]]) -> bool:
    """Whether any of a node's containers still runs."""
    return any(each["State"]["Running"] for each in containers)


def own_lines(job: Job) -> str:
    """What the launcher itself said."""
    return "\n".join(line for line in job.output.splitlines() if not re.match(r"node\d+:\d+ *\| ", line))
