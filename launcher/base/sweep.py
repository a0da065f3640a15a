"""Signal the processes that a child of ours started, and kill what it left behind.

A label in their environment marks them, or their place below us in the tree (`adoption`); never a name, and never their
number alone: once a process has ended, its number may be given to a stranger.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from launcher.base.adoption import seat, seats

_PATIENCE_S = 10.0
"""On a busy machine, a killed process that held much memory takes a while to disappear."""
_CLEANS_UP_S = 5.0
"""How long a process that cleans up after the others may take; torch's ends two seconds after the last of them."""
_CLEANERS = frozenset({"torch_shm_manager"})
"""Programs that remove shared memory once those that used it have ended. A name decides only who is ended last."""
_TICK_S, _CLEANING_TICK_S = 0.02, 0.1


def sweep(label: str, descendants: Callable[[], Iterable[int]] = tuple) -> int:
    """Kill every process that has `label` (`NAME=value`) in its environment; return how many had to be killed.

    Those that clean up after the others come last, and only if they don't end by themselves.

    Args:
        descendants: finds more of them.
    """
    killed: set[int] = set()
    started = time.monotonic()
    while time.monotonic() < started + _PATIENCE_S:
        alive = {*_labelled(os.fsencode(label)), *descendants()}
        if not alive:
            break
        spared = set(filter(_cleans_up, alive)) if time.monotonic() < started + _CLEANS_UP_S else set()
        for pid in alive - spared:
            if _kill(pid, label, descendants):
                killed.add(pid)
        time.sleep(_CLEANING_TICK_S if alive == spared else _TICK_S)
    return len(killed)


def _kill(pid: int, label: str, descendants: Callable[[], Iterable[int]]) -> bool:
    """Kill a process if it is still one of those meant; return whether it was there."""
    with suppress(OSError), _held(pid) as held:
        if held is not None and (_labelled_so(pid, label) or pid in descendants()):
            signal.pidfd_send_signal(held, signal.SIGKILL)
            return True
    return False


def signal_labelled(pid: int, signum: int, label: str, *, group: bool = False) -> None:
    """Signal the process of this number if it has `label`; `group`: and all others in the group that it leads."""
    with suppress(OSError), _held(pid) as held:  # it has ended, or belongs to somebody else
        if held is not None and not _labelled_so(pid, label):
            return
        if group:
            os.killpg(pid, signum)
        elif held is not None:
            signal.pidfd_send_signal(held, signum)
        else:
            os.kill(pid, signum)


def kill_sessions(leaders: Collection[int], label: str) -> None:
    """Kill all processes with `label` in the sessions of these leaders, whatever group they are in (Linux only)."""
    if sys.platform == "linux":
        for pid, place in seats().items():
            if place.session in leaders:
                signal_labelled(pid, signal.SIGKILL, label)


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
                if _has_label(entry, label) and _alive(int(entry.name)):
                    yield int(entry.name)


def _labelled_so(pid: int, label: str) -> bool:
    with suppress(OSError):
        return _has_label(Path(f"/proc/{pid}"), os.fsencode(label))
    return False


def _has_label(entry: Path, label: bytes) -> bool:
    return label in (entry / "environ").read_bytes().split(b"\0")


def _alive(pid: int) -> bool:
    """Return whether a process still runs; a zombie has ended, and only waits for its parent to notice."""
    place = seat(pid)
    return place is not None and place.state != "Z"


def _cleans_up(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/exe").readlink().name in _CLEANERS
    return False
