"""From the command to the end of the first optimizer step: `make train` against two torchrun started by hand.

Both run the bundled trainer on the same data, two nodes on this machine, in turn (A B A B …) after one uncounted
round; the figure is the ratio of the medians. Time counts from just before the command is started to the moment the
trainer wrote down its first step (`at` in metrics.jsonl).
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.result import Result, Row, ratio
from benchmarks.turns import in_turn
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT
from launcher.local.machine import LOOPBACK, free_port
from trainer.reporting.summary import read_records, summarize

_TRAINER_ARGUMENTS = ("--max-steps", "1", "--max-val-items", "64")
_TIMEOUT_S = 300
_REPETITIONS, _QUICK_REPETITIONS = 5, 2


def measure(quick: bool) -> Result:
    """Return both ways' seconds, and their ratio.

    Raises:
        RingmasterError: a run fails.
    """
    ways: dict[str, Callable[[], float]] = {"`make train NODES=2`": _make_train, "two `torchrun` by hand": _by_hand}
    for way in () if quick else ways.values():
        way()
    seconds = in_turn(ways, _QUICK_REPETITIONS if quick else _REPETITIONS, unit="s")
    ours, bare = (Row(label=label, unit="s", values=values) for label, values in seconds.items())
    return Result(
        name="first-step",
        title="From the command to the first optimizer step",
        command="make bench ONLY=first-step",
        rows=(ours, bare),
        ratios=(ratio("`make train` / by hand", ours, bare),),
        notes=("Two nodes, in turn" + ("." if quick else ", after one uncounted round."),),
    )


def _make_train() -> float:
    """Return the seconds to the first step under `make train`."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    folder = ROOT / "runs" / name
    command = ["make", "-s", "-C", str(ROOT), "train", "NODES=2", f"NAME={name}"]
    command += [f"INVENTORY={ROOT / 'inventory' / 'local.yml'}", f"ARGS={' '.join(_TRAINER_ARGUMENTS)}"]
    with restored_latest():
        try:
            return _timed([command], os.environ, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def restored_latest() -> Iterator[None]:
    """Point `runs/latest` to the user's own newest job again afterwards."""
    latest = ROOT / "runs" / "latest"
    before = latest.readlink() if latest.is_symlink() else None
    try:
        yield
    finally:
        latest.unlink(missing_ok=True)
        if before is not None:
            latest.symlink_to(before)


def _by_hand() -> float:
    """Return the seconds to the first step with the two commands that a person would type."""
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
        outputs = [process.communicate(timeout=_TIMEOUT_S)[0] for process in processes]
    finally:
        for process in processes:
            process.terminate()  # does nothing to those that have ended
    for process, command, text in zip(processes, commands, outputs, strict=True):
        if process.returncode != 0:
            sys.stderr.write(text)
            raise RingmasterError(f"{' '.join(command)} failed, see above", exit_code=ExitCode.FAILED)
    first = summarize(read_records(folder / "metrics.jsonl")).first_step_at
    if first is None:
        raise RingmasterError(f"{folder}: the trainer wrote no step", exit_code=ExitCode.FAILED)
    return first - started_at
