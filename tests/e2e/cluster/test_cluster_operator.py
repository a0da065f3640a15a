"""Who started a job goes away, comes back elsewhere, stops it: by `make stop`, or by Ctrl-C, politely or not."""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.cluster.cluster import NODES, Cluster, Done, await_, launcher_of, start_make, step

pytestmark = pytest.mark.timeout(3600)

_ENDLESS = "--dataset synthetic --epochs 5000 --batch-size 64"
_BEGINNING = r"^node1:0 +\| .*small-cnn"
_STEP = r"node1:0 +\| .*step \d+/\d+"
_DEAF = """
import os, signal, time
for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(signum, signal.SIG_IGN)
print("deaf", flush=True)
with open(os.environ["RUN_DIR"] + "/metrics.jsonl", "a") as file:
    print('{"kind": "step", "step": 1}', file=file)
while True:
    time.sleep(1)
"""


def test_a_job_goes_on_without_its_operator_and_obeys_the_next_one(cluster: Cluster, second_checkout: Path) -> None:
    running = cluster.start(ARGS=_ENDLESS)
    name = running.job.name
    with step("until the first steps"):
        running.await_steps()
    os.killpg(running.process.pid, signal.SIGKILL)
    running.process.communicate(timeout=120)
    before = cluster.steps_on_head(name)
    await_(lambda: cluster.steps_on_head(name) > before + 5)
    assert {node: len(found) for node, found in cluster.containers(name).items()} == {"node1": 1, "node2": 1}

    # Whoever has the inventory: here it is the checkout's own inventory/hosts.yml.
    status = cluster.make("status", checkout=second_checkout, INVENTORY="")
    assert status.exit_code == 0, status.output
    (row,) = [line for line in status.output.splitlines() if line.startswith(name)]
    assert re.fullmatch(rf"{name} +running +\S.* +\d+\S*(, epoch \d+)? +node1, node2", row)

    followed = follow(second_checkout, name)
    assert followed.exit_code == 130, followed.output
    assert re.search(_BEGINNING, followed.output, re.MULTILINE), "from the first line on"
    assert "make stop ends it" in followed.output
    assert {node: len(found) for node, found in cluster.containers(name).items()} == {"node1": 1, "node2": 1}

    stopped = cluster.make("stop", checkout=second_checkout, INVENTORY="")
    assert stopped.exit_code == 0, stopped.output
    for node in NODES:
        assert f"{node}: no container, no process, port free" in stopped.output
    cluster.assert_nothing_runs(running.job)
    end = assert_no_step_lost(second_checkout / "runs" / name)
    # Who had started it has an older copy of its checkpoints, but continues from what the nodes have.
    again = cluster.train(RESUME=name, ARGS=f"{_ENDLESS} --max-steps {end + 2}")
    assert again.exit_code == 0, again.output
    assert f"continues from job {name}: step {end} on node1" in again.output
    assert f"resumed at step {end}/{end + 2} from" in again.output
    assert f"step-{end:08d}.pt" in cluster.ssh("node2", "ls", f"/var/lib/ringmaster/jobs/{again.name}/run/checkpoints")
    for checkout in ({"checkout": second_checkout, "INVENTORY": ""}, {}):  # the one who had started it, too
        again = cluster.make("status", **checkout)  # type: ignore[arg-type]
        assert re.search(rf"^{name} +stopped ", again.output, re.MULTILINE), again.output
    replayed = cluster.make("logs", NAME=name)
    assert replayed.exit_code == 143, replayed.output
    assert re.search(_BEGINNING, replayed.output, re.MULTILINE)
    assert_no_step_lost(running.job.folder)


def test_control_c_once_saves_a_checkpoint_and_leaves_nothing(cluster: Cluster) -> None:
    running = cluster.start(ARGS=_ENDLESS)
    running.await_steps()
    with step("Ctrl-C"):
        running.interrupt()
        job = running.ended()
    assert job.exit_code == 130, job.output
    assert "stopping after this step, with a checkpoint" in job.output
    assert_no_step_lost(job.folder)
    cluster.assert_nothing_runs(job)


def test_control_c_three_times_ends_what_ignores_all_else(cluster: Cluster, program: Callable[[str], Path]) -> None:
    running = cluster.start(SCRIPT=program(_DEAF), GPUS=1)
    running.await_steps(1)
    began = time.time()
    with step("Ctrl-C three times"):
        for _ in range(3):
            running.interrupt()
            time.sleep(0.5)
        job = running.ended()
    assert max(cluster.moments(node, job.name, "die")[-1] for node in NODES) - began < 10
    assert job.exit_code == 130, job.output
    assert "killing" in job.output
    assert job.summary["state"] == "stopped"
    cluster.assert_nothing_runs(job)


def follow(checkout: Path, name: str) -> Done:
    """`make logs` until it has shown a step, then Ctrl-C: what came before is shown by then, if it is shown at all."""
    process = start_make("logs", checkout, {"NAME": name})
    assert process.stdout is not None
    seen = []
    limit = threading.Timer(120, os.killpg, (process.pid, signal.SIGKILL))
    for line in process.stdout:
        seen.append(line)
        if not limit.is_alive() and re.match(_STEP, line):
            limit.start()
            os.kill(launcher_of(process), signal.SIGINT)
    limit.cancel()
    process.wait(timeout=20)
    (code,) = re.findall(r"^ringmaster: exit (\d+) ", "".join(seen), re.MULTILINE)
    return Done(output="".join(seen), exit_code=int(code))


def assert_no_step_lost(folder: Path) -> int:
    """The last step that was written down is the one of the checkpoint; return it."""
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["state"] == "stopped"
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    last = max(record["step"] for record in records if "step" in record)
    manifest = json.loads((folder / summary["checkpoint"]).with_suffix(".json").read_text())
    assert manifest["step"] == last
    return last
