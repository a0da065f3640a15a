"""Two ranks that print much, on a terminal: `make train` against two torchrun started by hand, on the same terminal.

Every rank prints 200,000 lines. Both ways in turn (A B A B …) after one uncounted round, on a pseudo-terminal that is
read as fast as it comes. Time counts for the whole command. Every line must be in the logs.
"""

import os
import pty
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from benchmarks.first_step import restored_latest
from benchmarks.turns import in_turn
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT
from launcher.local.machine import LOOPBACK, free_port

LINES = 200_000
_MOST = 1.5
"""What is promised."""
_SCRIPT = f"""
import os
rank = os.environ["RANK"]
for number in range({LINES}):
    print(f"rank {{rank}} step {{number}} loss 0.123456 accuracy 0.9876")
"""


def run(repetitions: int) -> None:
    """Print both ways' seconds, and the ratio of their medians.

    Raises:
        RingmasterError: a run fails, or a line is missing in a log.
    """
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "prints.py"
        script.write_text(_SCRIPT)
        ways: dict[str, Callable[[], float]] = {
            "`make train NODES=2`": lambda: _make_train(script),
            "two `torchrun` by hand": lambda: _by_hand(script),
        }
        for way in ways.values():
            way()
        ours, bare = (statistics.median(values) for values in in_turn(ways, repetitions, unit="s").values())
    print(f"  medians of {repetitions}: {ours:.2f} s and {bare:.2f} s, ratio {ours / bare:.2f} (at most {_MOST})")


def _make_train(script: Path) -> float:
    """Return the seconds of the whole `make train`; its logs hold every line."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    folder = ROOT / "runs" / name
    command = ["make", "-s", "-C", str(ROOT), "train", "NODES=2", f"NAME={name}", f"SCRIPT={script}"]
    command += [f"INVENTORY={ROOT / 'inventory' / 'local.yml'}"]
    with restored_latest():
        try:
            seconds = on_a_terminal(shlex.join(command))
            for rank, log in enumerate(sorted((folder / "logs").glob("*.log"))):
                _check(log, rank)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return seconds


def _check(log: Path, rank: int) -> None:
    wanted = [b"[%d] rank %d step %d loss 0.123456 accuracy 0.9876" % (rank, rank, each) for each in range(LINES)]
    found = [line for line in log.read_bytes().split(b"\n") if line.startswith(b"[%d] " % rank)]
    if found != wanted:
        raise RingmasterError(f"{log.name}: {len(found)} lines of {LINES}, or in another order")


def _by_hand(script: Path) -> float:
    """Return the seconds of the two commands that a person would type."""
    torchrun, port = Path(sys.executable).with_name("torchrun"), free_port(LOOPBACK)
    common = f"--nnodes=2 --nproc-per-node=1 --master-addr={LOOPBACK} --master-port={port}"
    both = [f"{shlex.quote(str(torchrun))} {common} --node-rank={each} {shlex.quote(str(script))}" for each in (1, 0)]
    return on_a_terminal(f"{both[0]} & {both[1]} && wait $!")


def on_a_terminal(command: str) -> float:
    """Run a shell command on a terminal of its own, which is read as fast as it comes; return its seconds.

    Raises:
        RingmasterError: it fails.
    """
    ours, theirs = pty.openpty()
    started = time.monotonic()
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(theirs)
    last = b""
    while data := _read(ours):
        last = (last + data)[-2000:]
    code = process.wait()
    os.close(ours)
    if code != 0:
        sys.stderr.write(last.decode(errors="replace"))
        raise RingmasterError(f"{command} failed, see above", exit_code=ExitCode.FAILED)
    return time.monotonic() - started


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # EIO: nobody has it open any more
        return b""
