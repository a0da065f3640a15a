"""From the command to the end of the first optimizer step: `make train` against two torchrun started by hand.

Both run the bundled trainer on the same data, two nodes on this machine, in turn (A B A B …) after one uncounted
round; the figure is the ratio of the medians. Time counts from just before the command is started to the moment the
trainer wrote down its first step (`at` in metrics.jsonl).
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from launcher.errors import ExitCode, RingmasterError
from launcher.machine import LOOPBACK, free_port
from launcher.program import ROOT
from trainer.summary import read_records, summarize

_TRAINER_ARGUMENTS = ("--max-steps", "1", "--max-val-items", "64")
_TIMEOUT_S = 300


def run(repetitions: int) -> None:
    """Measure, and print both medians, their spread and the ratio."""
    ways: dict[str, Callable[[], float]] = {"make train NODES=2": _make_train, "two torchrun by hand": _by_hand}
    for measure in ways.values():
        measure()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(repetitions):
        for name, measure in ways.items():
            seconds[name].append(measure())
            print(f"  round {number + 1}/{repetitions}: {name}: {seconds[name][-1]:.2f} s", flush=True)
    print(f"\nfirst optimizer step, seconds after the command (n = {repetitions})")
    for name, values in seconds.items():
        print(f"  {name:22} median {statistics.median(values):6.2f}   from {min(values):.2f} to {max(values):.2f}")
    ours, bare = (statistics.median(values) for values in seconds.values())
    print(f"  ratio of the medians   {ours / bare:.3f}")


def _make_train() -> float:
    """Seconds to the first step under `make train`."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    folder = ROOT / "runs" / name
    command = ["make", "-s", "-C", str(ROOT), "train", "NODES=2", f"NAME={name}"]
    command += [f"INVENTORY={ROOT / 'inventory' / 'local.yml'}", f"ARGS={' '.join(_TRAINER_ARGUMENTS)}"]
    latest = ROOT / "runs" / "latest"
    before = latest.readlink() if latest.is_symlink() else None
    try:
        return _timed([command], os.environ, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        latest.unlink(missing_ok=True)
        if before is not None:
            latest.symlink_to(before)


def _by_hand() -> float:
    """Seconds to the first step with the two commands that a person would type."""
    port = free_port(LOOPBACK)
    torchrun = Path(sys.executable).with_name("torchrun")
    commands = [
        [
            *(str(torchrun), "--nnodes=2", "--nproc-per-node=1", f"--node-rank={node_rank}"),
            *(f"--master-addr={LOOPBACK}", f"--master-port={port}", "-m", "trainer", *_TRAINER_ARGUMENTS),
        ]
        for node_rank in range(2)
    ]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "RUN_DIR": folder, "DATA_DIR": str(ROOT / "data")}
        return _timed(commands, environment, Path(folder))


def _timed(commands: list[list[str]], environment: "os._Environ[str] | dict[str, str]", folder: Path) -> float:
    """Start `commands` together, wait for all, and return when the first step was done, seconds after the start."""
    started_at = time.time()
    processes = [
        subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for command in commands
    ]
    try:
        said = [process.communicate(timeout=_TIMEOUT_S)[0] for process in processes]
    finally:
        for process in processes:
            process.terminate()  # of those that have ended nothing is left to terminate
    for process, command, text in zip(processes, commands, said, strict=True):
        if process.returncode != 0:
            sys.stderr.write(text)
            raise RingmasterError(f"{' '.join(command)} failed, see above", exit_code=ExitCode.FAILED)
    first = summarize(read_records(folder / "metrics.jsonl")).first_step_at
    if first is None:
        raise RingmasterError(f"{folder}: the trainer wrote no step", exit_code=ExitCode.FAILED)
    return first - started_at
