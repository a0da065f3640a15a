"""The user's own program: started as they expect, and what goes wrong in it is named."""

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from tests.e2e.jobs import Trainer, processes_with

Script = Callable[..., Path]

SUM_OF_RANKS = """
import json, os, sys
import beside
import torch, torch.distributed as dist
dist.init_process_group()
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
print(ascii({"argv": sys.argv[1:], "cwd": os.getcwd(), "path": sys.path[0], "local_rank": os.environ["LOCAL_RANK"],
             "total": total.item(), "world": dist.get_world_size(), "beside": beside.VALUE,
             "places": [os.path.isdir(os.environ[name]) for name in ("RUN_DIR", "CHECKPOINT_DIR")]}), flush=True)
if dist.get_rank() == 0:
    with open(os.environ["RUN_DIR"] + "/metrics.jsonl", "a") as file:
        for step in range(1, 4):
            print(json.dumps({"kind": "step", "step": step, "loss": 1 / step, "images_per_s": 100.0}), file=file)
        print(json.dumps({"kind": "epoch", "epoch": 1, "step": 3, "test_accuracy": 0.75}), file=file)
dist.destroy_process_group()
"""
SPAWNS = """
import os, socket
import torch, torch.distributed as dist, torch.multiprocessing as processes

def meet(place, address, world):
    dist.init_process_group("gloo", init_method=address, rank=place, world_size=world)
    total = torch.tensor([float(place)])
    dist.all_reduce(total)
    dist.destroy_process_group()
    if place == 0:
        print(address.rpartition(":")[0], world, total.item(), flush=True)

def first(place, node, nodes):
    meet(2 * node + place, f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", 2 * nodes)

if __name__ == "__main__":
    node, nodes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    processes.spawn(first, (node, nodes), nprocs=2)  # all nodes' processes at the address that torchrun named
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes.spawn(meet, (f"tcp://127.0.0.1:{port}", 2), nprocs=2)  # this node's at one of their own
"""
FAILS = """
import os, sys, time
import torch.distributed as dist
dist.init_process_group()
dist.barrier()
if dist.get_rank() == 1:
    {fault}
dist.barrier()
time.sleep(600)
"""


def test_any_name_any_arguments_and_a_module_beside_it(train: Trainer, script: Script, tmp_path: Path) -> None:
    path = script(SUM_OF_RANKS, "schön $HOME 训练.py")
    script("VALUE = 42\n", "beside.py")
    witness = tmp_path / "executed"
    arguments = f"--lr 0.1 --note \"it's $HOME\" '$(touch {witness})' '`touch {witness}`' '; touch {witness}' 'a\nb'"
    arguments += " '$$ ${local_rank} $(shell touch " + str(witness) + ")' -- --nnodes=7 '' schön"
    job = train(SCRIPT=path, ARGS=arguments)
    assert job.exit_code == 0, job.output
    expected = [
        *("--lr", "0.1", "--note", "it's $HOME", f"$(touch {witness})", f"`touch {witness}`", f"; touch {witness}"),
        *("a\nb", f"$$ ${{local_rank}} $(shell touch {witness})", "--", "--nnodes=7", "", "schön"),
    ]
    for label in ("node1:0", "node2:1"):
        (line,) = job.lines_of(label)
        said = eval(line)  # noqa: S307 - what our own script printed
        assert said["argv"] == expected
        assert (said["cwd"], said["path"]) == (str(path.parent), str(path.parent))
        assert (said["local_rank"], said["total"], said["world"], said["beside"]) == ("0", 1.0, 2, 42)
        assert said["places"] == [True, True]
    assert not witness.exists(), "an argument was executed on the way"


def test_what_the_script_reports_is_summarized_and_the_rest_is_null(train: Trainer, script: Script) -> None:
    script("VALUE = 1\n", "beside.py")
    job = train(NODES=1, SCRIPT=script(SUM_OF_RANKS))
    assert job.summary["test_accuracy"] == 0.75
    assert job.summary["images_per_s"] == 100.0
    assert (job.summary["checkpoint"], job.summary["first_step_s"]) == (None, None)
    assert "0.7500" in job.output


@pytest.mark.parametrize("flag", ["--local-rank", "--local_rank"])
def test_a_launch_style_script_is_detected_and_said_aloud(train: Trainer, script: Script, flag: str) -> None:
    path = script(
        "import argparse\nparser = argparse.ArgumentParser()\n"
        f"parser.add_argument('{flag}', type=int, required=True)\nparser.add_argument('--lr')\n"
        "print(vars(parser.parse_args()))\n"
    )
    job = train(NODES=1, SCRIPT=path, ARGS="--lr 1")
    assert job.exit_code == 0, job.output
    assert job.lines_of("node1:0") == ["{'local_rank': 0, 'lr': '1'}"]
    assert f"launch-style script: each rank is given {flag}=" in job.output


def test_a_script_that_starts_its_own_processes(train: Trainer, script: Script) -> None:
    job = train(RANKS=1, SCRIPT=script(SPAWNS))
    assert job.exit_code == 0, job.output
    assert job.lines_of("node1:0") == ["tcp://127.0.0.1 4 6.0", "tcp://127.0.0.1 2 1.0"]
    assert job.lines_of("node2:1") == ["tcp://127.0.0.1 2 1.0"]
    assert "one process per node" in job.output


def test_a_rank_that_raises_stops_all_and_is_named(train: Trainer, script: Script) -> None:
    path = script(FAILS.format(fault="print(time.time(), flush=True); raise ValueError('boom in rank 1')"))
    job = train(SCRIPT=path)
    assert job.exit_code == 1, job.output
    failure = job.summary["failure"]
    assert job.summary["state"] == "failed"
    assert (failure["node"], failure["rank"], failure["exit_code"], failure["signal"]) == ("node2", 1, 1, None)
    assert failure["reason"] == "ValueError: boom in rank 1"
    assert any("boom in rank 1" in line for line in failure["log_tail"])
    ended = datetime.fromisoformat(job.summary["started_at"]).timestamp() + job.summary["wall_s"]
    assert ended - float(job.lines_of("node2:1")[0]) < 15, "the promise is 5 s, on a machine that is not busy"
    assert "FAILED: node2 rank 1: ValueError: boom in rank 1" in job.output
    assert processes_with(f"RINGMASTER_JOB={job.name}") == []


@pytest.mark.parametrize(
    ("fault", "signal", "reason"),
    [
        ("os.kill(os.getpid(), 9)", "SIGKILL", "killed by SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV", "killed by SIGSEGV"),
        # Not sys.exit: while Python's last steps take long, the other rank's error is all that is known.
        ("os._exit(3)", None, "exited with code 3"),
        ("import no_such_module", None, "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_other_ends_are_named_too(train: Trainer, script: Script, fault: str, signal: str | None, reason: str) -> None:
    job = train(SCRIPT=script(FAILS.format(fault=fault)))
    failure = job.summary["failure"]
    assert job.exit_code == 1, "a user's own exit code 3 is no check of ours"
    assert (failure["node"], failure["rank"], failure["signal"], failure["reason"]) == ("node2", 1, signal, reason)


def test_a_helper_left_in_the_background_is_ended(train: Trainer, script: Script) -> None:
    path = script("import subprocess\nsubprocess.Popen(['sleep', '600'], start_new_session=True)\n")
    job = train(NODES=1, SCRIPT=path)
    assert job.exit_code == 0
    assert "1 process(es) that the job had left behind were ended" in job.output
    assert processes_with(f"RINGMASTER_JOB={job.name}") == []


def test_a_script_in_a_repository_works_from_its_top_level(train: Trainer, tmp_path: Path) -> None:
    inner = tmp_path / "repo" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "repo" / ".git").mkdir()
    (inner / "script.py").write_text("import os, sys, json\nprint(json.dumps([os.getcwd(), sys.path[0]]))\n")
    job = train(NODES=1, SCRIPT=inner / "script.py")
    assert json.loads(job.lines_of("node1:0")[0]) == [str(tmp_path / "repo"), str(inner)]
