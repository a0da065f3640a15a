"""Ends what a child of ours has left behind, found by a label in its environment, never by name."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PATIENCE_S = 10.0
"""A killed process with much memory, on a busy machine, takes its time to be gone."""


def sweep(label: str) -> int:
    """Kill every process that has `label` (`NAME=value`) in its environment; return how many there were."""
    found: set[int] = set()
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        alive = set(_labelled(os.fsencode(label)))
        if not alive:
            break
        for pid in alive:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        found |= alive
        time.sleep(0.02)
    return len(found)


def _labelled(label: bytes) -> Iterator[int]:
    """Ids of the processes with `label` in their environment (Linux; elsewhere the sessions' kill has to do)."""
    if sys.platform != "linux":
        return
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if label in (entry / "environ").read_bytes().split(b"\0") and _alive(entry):
                    yield int(entry.name)


def _alive(entry: Path) -> bool:
    """Not a zombie: those are gone but for their parent's look."""
    return (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
