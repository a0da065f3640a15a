"""Runs of the trainer under torchrun."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from launcher.base.paths import ROOT
from launcher.local import machine

FLAGS = ["--dataset", "synthetic", "--model", "tutorial-cnn", "--epochs", "8", "--batch-size", "64", "--lr", "0.01"]
FLAGS += ["--checkpoint-steps", "64", "--keep", "99"]

LIMIT = 400


def start(run: Path, *options: str, flags: list[str]) -> subprocess.Popen[str]:
    launcher = ["-m", "torch.distributed.run", *options] if options else []
    command = [sys.executable, *launcher, "-m", "trainer", *flags, "--run-dir", str(run)]
    return subprocess.Popen(command, cwd=ROOT, env=environment(), stderr=subprocess.PIPE, text=True)


def start_two_nodes(
    run: Path, flags: list[str] = FLAGS, others: list[str] | None = None
) -> list[subprocess.Popen[str]]:
    """`others`: the second node's flags, if they differ."""
    port = machine.free_port(machine.LOOPBACK)
    rendezvous = [
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{port}",
        "--rdzv-id=test",
        "--local-addr=127.0.0.1",
    ]
    return [
        start(run, "--nnodes=2", "--nproc-per-node=1", *rendezvous, flags=each) for each in (flags, others or flags)
    ]


def finish(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    try:
        errors = [process.communicate(timeout=LIMIT)[1] for process in processes]
        return [(process.returncode, text) for process, text in zip(processes, errors, strict=True)]
    finally:
        for process in processes:
            process.kill()


def records(run: Path, event: str) -> list[dict[str, Any]]:
    path = run / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    lines = text[: text.rfind("\n") + 1].splitlines()  # the last may be half there
    return [record for record in map(json.loads, lines) if event in (record["kind"], record.get("event"))]


def wait_for(run: Path, process: subprocess.Popen[str], event: str = "step") -> None:
    deadline = time.monotonic() + LIMIT
    while not records(run, event):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)


def parameters(run: Path, step: int | None = None) -> dict[str, torch.Tensor]:
    if step is None:
        state: dict[str, torch.Tensor] = torch.load(run / "checkpoints" / "model.pt", weights_only=True)
    else:
        state = torch.load(run / "checkpoints" / f"step-{step:08d}.pt", weights_only=True)["model"]
    return state


def environment() -> dict[str, str]:
    mine = {name: value for name, value in os.environ.items() if not name.startswith("RINGMASTER_")}
    return {
        **mine,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "RINGMASTER_JOB": "test",
        "CUDA_VISIBLE_DEVICES": "",
    }
