"""Programs that start their own processes, and programs that want their node's number in their arguments."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from launcher.base.paths import ROOT
from tests.e2e.jobs import Trainer, processes_with

Script = Callable[..., Path]

# Started by hand on every node: it counts its node's devices, here two, and numbers its processes by them.
PER_NODE = """
import argparse, os
import torch, torch.distributed as dist, torch.multiprocessing as mp

def work(place, each, args):
    rank, world = args.rank * each + place, args.world_size * each
    dist.init_process_group("gloo", init_method=args.init_method, rank=rank, world_size=world)
    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    os.write(1, f"rank {rank} of {world}: {total.item()}\\n".encode())  # at once: two processes have one pipe
    dist.destroy_process_group()

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--init-method", default="tcp://127.0.0.1:23456")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world-size", type=int, default=1)
    parser.add_argument("--lr", type=float, required=True)
    args = parser.parse_args()
    mp.spawn(work, (2, args), nprocs=2)
"""
ENDLESS = """
import os, signal, sys, time
import torch, torch.distributed as dist, torch.multiprocessing as mp

def tell(what, place):
    open(os.path.join(os.environ["RUN_DIR"], f"{what}-{place}"), "w").close()

def work(place, address):
    signal.signal(signal.SIGINT, lambda *_: (tell("heard", place), sys.exit(1)))
    dist.init_process_group("gloo", init_method=address, rank=place, world_size=2)
    step = torch.zeros(1)
    while True:
        dist.all_reduce(step)
        step += 1
        if step == 3:
            tell("trains", place)
        time.sleep(0.01)

if __name__ == "__main__":
    mp.spawn(work, (f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}",), nprocs=2)
"""
# It knows torchrun's variables too, so nothing tells that it is to be started otherwise.
BY_ARGUMENTS = """
import json, os, sys
import torch, torch.distributed as dist
assert "RANK" in os.environ
rank, nodes, address = sys.argv[1:4]
dist.init_process_group("gloo", init_method=address, rank=int(rank), world_size=int(nodes))
total = torch.tensor([float(rank) + 1])
dist.all_reduce(total)
print(json.dumps([total.item(), *sys.argv[1:]]), flush=True)
dist.destroy_process_group()
"""


def test_it_is_started_once_per_node_without_being_told(train: Trainer, script: Script) -> None:
    job = train(SCRIPT=script(PER_NODE), ARGS="--lr 0.1")
    assert job.exit_code == 0, job.output
    port = job.plan["port"] + 1
    assert f"once per node with --rank=<node> --world-size=2 --init-method=tcp://127.0.0.1:{port}" in job.output
    for label, ranks in (("node1:0", (0, 1)), ("node2:1", (2, 3))):
        assert sorted(job.lines_of(label)) == [f"rank {rank} of 4: 6.0" for rank in ranks]
    assert (job.plan["launch_style"], job.plan["ranks"], job.plan["world_size"]) == ("spawn", None, 2)


def test_one_number_for_all_nodes_is_refused_before_anything_starts(train: Trainer, script: Script) -> None:
    job = train(SCRIPT=script(PER_NODE), ARGS="--lr 0.1 --rank 0")
    assert job.exit_code == 2, job.output
    assert "each of 2 nodes needs its own" in job.output
    assert not job.folder.exists()


def test_placeholders_are_filled_in_on_each_node(train: Trainer, script: Script) -> None:
    path = script(BY_ARGUMENTS)
    words = '{node_rank} {nodes} {init_method} --out={RUN_DIR}/x \'{"a": {"b": "${c}"}}\' {{epoch}}'
    dry = train(SCRIPT=path, ARGS=words, PLACEHOLDERS=1, DRY_RUN=1)
    assert "'0 2 tcp://" in dry.output and "'1 2 tcp://" in dry.output
    job = train(SCRIPT=path, ARGS=words, PLACEHOLDERS=1)
    assert job.exit_code == 0, job.output
    at = f"tcp://127.0.0.1:{job.plan['port'] + 1}"
    for number, label in enumerate(("node1:0", "node2:1")):
        said = json.loads(job.lines_of(label)[0])
        assert said == [3.0, str(number), "2", at, f"--out={job.folder}/run/x", '{"a": {"b": "${c}"}}', "{epoch}"]
    assert (job.plan["arguments"][0], job.plan["placeholders"]) == ("{node_rank}", True), "as RESUME finds them"


def test_one_interrupt_ends_them_all_without_force(train: Trainer, script: Script) -> None:
    path = script(ENDLESS)
    name, process = train.start(SCRIPT=path, NODES=1)
    folder = ROOT / "runs" / name
    while process.poll() is None and not all((folder / f"trains-{place}").exists() for place in (0, 1)):
        time.sleep(0.05)
    assert process.poll() is None, process.communicate()[0]
    (launcher,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(launcher), signal.SIGINT)
    output, _ = process.communicate(timeout=240)
    assert "ringmaster: exit 130 (stopped by Ctrl-C)" in output
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["state"], summary["failure"]) == ("stopped", None)
    assert all((folder / f"heard-{place}").exists() for place in (0, 1)), "killed instead, after a minute"
    assert "were ended" not in output, "nothing was left to be swept away"
    assert processes_with(f"RINGMASTER_JOB={name}") == []
