"""Kill the processes that a child of ours left behind. A label in their environment marks them, never a name."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PATIENCE_S = 10.0
"""On a busy machine, a killed process that held much memory takes a while to disappear."""


def sweep(label: str) -> int:
    """Kill every process that has `label` (`NAME=value`) in its environment; return how many there were."""
    killed: set[int] = set()
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        alive = set(_labelled(os.fsencode(label)))
        if not alive:
            break
        for pid in alive:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= alive
        time.sleep(0.02)
    return len(killed)


def _labelled(label: bytes) -> Iterator[int]:
    """Yield the ids of the processes with `label` in their environment (Linux only).

    Elsewhere, killing their sessions must be enough.
    """
    if sys.platform != "linux":
        return
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if label in (entry / "environ").read_bytes().split(b"\0") and _alive(entry):
                    yield int(entry.name)


def _alive(entry: Path) -> bool:
    """Return whether a process still runs; a zombie has ended, and only waits for its parent to notice."""
    return (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
