"""Signal the processes that a child of ours started, and kill what it left behind.

A label in their environment marks them, never a name, and never their number alone: once a process has ended, its
number may be given to a stranger.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
            signal_labelled(pid, signal.SIGKILL, label)
        killed |= alive
        time.sleep(0.02)
    return len(killed)


def signal_labelled(pid: int, signum: int, label: str, *, group: bool = False) -> None:
    """Signal the process of this number if it has `label`; `group`: and all others in the group that it leads."""
    with suppress(OSError), _held(pid) as held:  # it has ended, or belongs to somebody else
        if held is not None and not _has_label(Path(f"/proc/{pid}"), os.fsencode(label)):
            return
        if group:
            os.killpg(pid, signum)
        elif held is not None:
            signal.pidfd_send_signal(held, signum)
        else:
            os.kill(pid, signum)


@contextmanager
def _held(pid: int) -> Iterator[int | None]:
    """Yield a descriptor that stays this process's when its number doesn't; None where there are no such (Linux only).

    Raises:
        OSError: there is no such process.
    """
    if sys.platform != "linux":
        yield None
        return
    held = os.pidfd_open(pid)
    try:
        yield held
    finally:
        os.close(held)


def _labelled(label: bytes) -> Iterator[int]:
    """Yield the ids of the processes with `label` in their environment (Linux only).

    Elsewhere, killing their sessions must be enough.
    """
    if sys.platform != "linux":
        return
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if _has_label(entry, label) and _alive(entry):
                    yield int(entry.name)


def _has_label(entry: Path, label: bytes) -> bool:
    return label in (entry / "environ").read_bytes().split(b"\0")


def _alive(entry: Path) -> bool:
    """Return whether a process still runs; a zombie has ended, and only waits for its parent to notice."""
    return (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
