"""Whether Ctrl-C is obeyed and noted at once, whoever reads: a drill, because it measures times.

Run it where nothing else runs: `.venv/bin/python -m pytest -m drill -rP tests/e2e/test_screen_drill.py`. What the
screen costs ranks that print much is measured by `make bench ONLY=lines`.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import pytest

from tests.e2e.jobs import Job, Trainer, processes_with
from tests.support.terminal import Output, opened

pytestmark = [pytest.mark.drill, pytest.mark.timeout(1800)]

Script = Callable[..., Path]

_STOPPED_S, _NOTED_S = 5.0, 0.5

_PRINTS_UNTIL_TOLD = """
import os, signal, sys
signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
open(os.path.join(os.environ["RUN_DIR"], "here-" + os.environ["RANK"]), "w").close()
number = 0
while True:
    print("line", number, "loss 0.12345")
    number += 1
"""
# 500 kB/s; what a thread prints doesn't keep the checkpoint waiting.
_PRINTS_AND_SAVES = """
import os, signal, threading, time
RANK = os.environ["RANK"]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
told = threading.Event()
signal.signal(signal.SIGINT, lambda *_: told.set())

def talk():
    while True:
        print("x" * 4999)
        time.sleep(0.01)

threading.Thread(target=talk, daemon=True).start()
open(os.path.join(os.environ["RUN_DIR"], "here-" + RANK), "w").close()
while not told.wait(0.1):
    pass
open(os.path.join(os.environ["CHECKPOINT_DIR"], "saved-" + RANK), "w").close()
while True:
    time.sleep(600)
"""


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_nobody_reads_and_three_times_control_c_is_obeyed(
    train: Trainer, script: Script, kind: Literal["pipe", "terminal"]
) -> None:
    with opened(kind) as output, started(train, output, SCRIPT=script(_PRINTS_AND_SAVES)) as (job, process):
        seconds_until(lambda: len(list(job.folder.glob("here-*"))) == 2, 240)
        output.await_full(seconds=240)
        launcher = launcher_of(process)
        os.kill(launcher, signal.SIGINT)
        saved = seconds_until(lambda: len(list(job.folder.glob("checkpoints/saved-*"))) == 2, 60)
        os.kill(launcher, signal.SIGINT)
        time.sleep(0.2)
        os.kill(launcher, signal.SIGINT)
        stopped = seconds_until(
            lambda: not processes_with(f"RINGMASTER_JOB={job.name}") and (job.folder / "summary.json").exists(), 60
        )
        print(f"{kind}: saved {saved:.1f} s after the first, stopped {stopped:.1f} s after the third")
        output.read_on()
        process.wait(timeout=60)
    assert (job.summary["state"], job.summary["exit_code"]) == ("stopped", 130)
    assert stopped < _STOPPED_S


def test_control_c_is_noted_while_ranks_print_as_fast_as_they_can(train: Trainer, script: Script) -> None:
    with opened("terminal") as output, started(train, output, SCRIPT=script(_PRINTS_UNTIL_TOLD)) as (job, process):
        output.read_on()
        seconds_until(lambda: len(list(job.folder.glob("here-*"))) == 2, 240)
        seconds_until(lambda: len(output.text) > 1 << 20, 240)
        os.kill(launcher_of(process), signal.SIGINT)
        noted = output.await_words(b"asked the script to stop", seconds=120)
        print(f"noted on the terminal after {noted:.2f} s")
        process.wait(timeout=120)
    assert noted < _NOTED_S


@contextmanager
def started(train: Trainer, output: Output, **variables: object) -> "Iterator[tuple[Job, subprocess.Popen[bytes]]]":
    """Start `make train` with this output; leave nothing of it behind."""
    name = train.name()
    process = subprocess.Popen(
        train.command(NAME=name, **variables),
        stdin=subprocess.DEVNULL, stdout=output.inside, stderr=output.inside, start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color"},
    )  # fmt: skip
    try:
        yield Job(name=name, output=""), process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the launcher's processes end with it
        process.wait(timeout=60)


def launcher_of(process: "subprocess.Popen[bytes]") -> int:
    """The process that make has started."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])


def seconds_until(condition: Callable[[], bool], limit_s: float) -> float:
    """Wait until something is so, and return how long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < limit_s, f"not so within {limit_s} s"
        time.sleep(0.02)
    return time.monotonic() - began
