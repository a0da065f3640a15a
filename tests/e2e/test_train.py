"""`make train` with the bundled trainer, on this machine as a cluster."""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.base.paths import ROOT
from tests.e2e.jobs import SYNTHETIC, Job, Trainer, processes_with

Script = Callable[..., Path]

DEAF = """
import os, signal, time
for each in (signal.SIGINT, signal.SIGTERM):
    signal.signal(each, signal.SIG_IGN)
open(os.path.join(os.environ["RUN_DIR"], "deaf-" + os.environ["RANK"]), "w").close()
time.sleep(600)
"""
SUMMARY_KEYS = {
    *("name", "state", "exit_code", "nodes", "world_size", "backend", "image", "started_at", "first_step_s"),
    *("wall_s", "restarts", "incidents", "images_per_s", "test_accuracy", "epochs", "checkpoint", "failure"),
}


@pytest.fixture(scope="module")
def two_nodes(train: Trainer) -> Job:
    return train(ARGS=SYNTHETIC)


def test_two_nodes_train_and_everything_is_there(two_nodes: Job) -> None:
    summary = two_nodes.summary
    assert two_nodes.exit_code == 0
    assert set(summary) == SUMMARY_KEYS
    assert (summary["state"], summary["exit_code"], summary["failure"]) == ("succeeded", 0, None)
    assert (summary["nodes"], summary["world_size"], summary["epochs"]) == (["node1", "node2"], 2, 2)
    assert summary["test_accuracy"] > 0.2, "twice what guessing gives: 32 steps are few, and seeds differ much"
    assert 0 < summary["first_step_s"] < summary["wall_s"]
    assert summary["images_per_s"] > 0
    assert (two_nodes.folder / summary["checkpoint"]).is_file()


def test_the_folder_is_as_documented(two_nodes: Job) -> None:
    assert sorted(path.name for path in two_nodes.folder.iterdir()) == [
        *(".launcher", "checkpoints", "job.toml", "logs", "metrics.jsonl", "plan.json", "report.html", "summary.json"),
    ]
    assert sorted(path.name for path in (two_nodes.folder / "logs").iterdir()) == ["node1.log", "node2.log"]
    kinds = {json.loads(line)["kind"] for line in (two_nodes.folder / "metrics.jsonl").read_text().splitlines()}
    assert kinds == {"step", "epoch", "event"}
    report = (two_nodes.folder / "report.html").read_text()
    assert two_nodes.name in report and "<svg" in report
    assert [node["address"] for node in two_nodes.plan["nodes"]] == ["127.0.0.1"] * 2


def test_the_output_is_labelled_and_ends_with_the_code(two_nodes: Job) -> None:
    assert two_nodes.lines_of("node1:0")
    assert two_nodes.output.rstrip().splitlines()[-1] == "ringmaster: exit 0 (succeeded)"
    assert "\x1b" not in two_nodes.output, "no terminal, no escape sequences"


def test_one_node_and_three_nodes(train: Trainer) -> None:
    for nodes in (1, 3):
        job = train(NODES=nodes, ARGS=f"{SYNTHETIC} --max-steps 3")
        assert job.exit_code == 0, job.output
        assert job.summary["world_size"] == nodes


def test_a_dry_run_prints_the_commands_and_starts_nothing(train: Trainer) -> None:
    job = train(DRY_RUN=1, ARGS="--epochs 1")
    assert job.exit_code == 0
    assert not job.folder.exists()
    assert job.output.count("torchrun --nnodes=2 --nproc-per-node=1 --node-rank=") == 2
    assert "RINGMASTER_ARGUMENTS='--epochs 1'" in job.output


def test_a_name_is_taken_once(two_nodes: Job, train: Trainer) -> None:
    before = two_nodes.summary
    again = train(NAME=two_nodes.name, ARGS=SYNTHETIC)
    assert again.exit_code == 2
    assert "there is a job of this name" in again.output
    assert two_nodes.summary == before


def test_resume_continues_with_the_same_arguments(two_nodes: Job, train: Trainer) -> None:
    job = train(RESUME=two_nodes.name, ARGS=f"{SYNTHETIC} --epochs 3")
    assert job.exit_code == 0, job.output
    assert job.summary["epochs"] == 3
    first = next(
        json.loads(line) for line in (job.folder / "metrics.jsonl").read_text().splitlines() if '"step"' in line
    )
    assert first["step"] > 1 or first.get("event") == "resume"
    assert two_nodes.summary["epochs"] == 2


@pytest.mark.parametrize(
    ("variables", "code", "message"),
    [
        ({"NODES": "0"}, 2, "NODES=0"),
        ({"NODES": "abc"}, 2, "NODES=abc"),
        ({"NODES": "5"}, 2, "ask for 1 to 4"),
        ({"GPUS": "x y"}, 2, "GPUS"),
        ({"GPUS": "64"}, 3, "64"),
        ({"LIMIT": "node9"}, 2, "node9"),
        ({"INVENTORY": "/no/such.yml"}, 2, "no such inventory"),
        ({"SCRIPT": "/no/such.py"}, 2, "no such file"),
        ({"SCRIPT": "Makefile"}, 2, "not Python"),
        ({"ARGS": "'open"}, 2, "no closing quotation"),
        ({"ARGS": "--epochs many"}, 2, "--epochs"),
        ({"ARGS": "--no-such-flag"}, 2, "--no-such-flag"),
        ({"ARGS": "--strategy none"}, 2, "strategy"),
        ({"DATA": "/no/such"}, 2, "DATA"),
        ({"NAME": "../x"}, 2, "NAME"),
        ({"RESUME": "no-such-job"}, 2, "no such job"),
        ({"LAUNCH_STYLE": "yes"}, 2, "LAUNCH_STYLE"),
        ({"DRY_RUN": "yes"}, 2, "DRY_RUN"),
    ],
)
def test_bad_input_is_one_line_and_starts_nothing(
    train: Trainer, variables: dict[str, str], code: int, message: str
) -> None:
    runs = ROOT / "runs"
    before = set(runs.iterdir()) if runs.exists() else set()
    job = train(**variables)
    assert job.exit_code == code, job.output
    errors = [line for line in job.output.splitlines() if not line.startswith(("make", "ringmaster: exit"))]
    assert len(errors) == 1 and errors[0].startswith("ringmaster: "), job.output
    assert message in errors[0]
    assert (set(runs.iterdir()) if runs.exists() else set()) == before


def test_a_variable_that_make_does_not_know_is_refused() -> None:
    done = subprocess.run(["make", "-C", str(ROOT), "train", "NODE=3"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "there is no variable 'NODE'" in done.stderr


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_saves_a_checkpoint_and_loses_no_step(train: Trainer, signum: int, code: int) -> None:
    name, process = train.start(ARGS=f"{SYNTHETIC} --epochs 500")
    job = Job(name=name, output="")
    wait_for_steps(job, process)
    launcher = children(process.pid)
    for pid in launcher:
        send(pid, signum)
    output, _ = process.communicate(timeout=90)
    job = Job(name=name, output=output)
    assert job.exit_code == code, output
    assert (job.summary["state"], job.summary["exit_code"]) == ("stopped", code)
    records = [json.loads(line) for line in (job.folder / "metrics.jsonl").read_text().splitlines()]
    last_step = max(record["step"] for record in records if "step" in record)
    manifest = json.loads((job.folder / job.summary["checkpoint"]).with_suffix(".json").read_text())
    assert manifest["step"] == last_step
    assert processes_with(f"RINGMASTER_JOB={name}") == []


def test_three_times_kills_at_once(train: Trainer, script: Script) -> None:
    name, process = train.start(SCRIPT=script(DEAF))
    job = Job(name=name, output="")
    deadline = time.monotonic() + 240
    while len(list(job.folder.glob("deaf-*"))) < 2:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    (launcher,) = children(process.pid)
    started = time.monotonic()
    for _ in range(3):
        send(launcher, signal.SIGINT)
        time.sleep(0.3)
    output, _ = process.communicate(timeout=60)
    assert time.monotonic() - started < 25, "torchrun itself waits 30 s, the launcher 60 s"
    assert Job(name=name, output=output).exit_code == 130
    assert processes_with(f"RINGMASTER_JOB={name}") == []


def test_a_launcher_that_is_killed_leaves_no_process(train: Trainer) -> None:
    name, process = train.start(ARGS=f"{SYNTHETIC} --epochs 500")
    wait_for_steps(Job(name=name, output=""), process)
    (launcher,) = children(process.pid)
    send(launcher, signal.SIGKILL)
    process.communicate(timeout=60)
    deadline = time.monotonic() + 120  # torchrun leaves its ranks 30 s
    while processes_with(f"RINGMASTER_JOB={name}") and time.monotonic() < deadline:
        time.sleep(0.2)
    assert processes_with(f"RINGMASTER_JOB={name}") == []


def wait_for_steps(job: Job, process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 120
    metrics = job.folder / "metrics.jsonl"
    while time.monotonic() < deadline:
        if metrics.exists() and metrics.read_text().count('"kind": "step"') >= 2:
            return
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    raise AssertionError("no step within 120 s")


def children(pid: int) -> list[int]:
    """The processes that make started: the launcher."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def send(pid: int, signum: int) -> None:
    import os

    os.kill(pid, signum)
