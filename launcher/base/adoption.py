"""The processes below us in the tree, wherever they have gone: Linux hands us those that lose their parents.

That finds what a label can't: a process that has cleared its environment and left its session (`env -i setsid …`). A
process counts if it descends from us, is not in our session (nothing can come back there once it has left), and is not
below one that was there before.
"""

import ctypes
import os
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


@dataclass(frozen=True, kw_only=True)
class Seat:
    """A process's place in the tree. Its start tells it from a later one of the same number."""

    parent: int
    session: int
    state: str
    """The kernel's letter; Z: it has ended, and waits for its parent to notice."""
    start: str


def seat(pid: int) -> Seat | None:
    """Return a process's place; None if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return Seat(parent=int(fields[1]), session=int(fields[3]), state=fields[0], start=fields[19])
    except (OSError, IndexError, ValueError):
        return None


def below(us: int, session: int, table: Mapping[int, Seat], spared: Collection[tuple[int, str]]) -> set[int]:
    """Return the processes below `us` that are in another session, without the `spared` ones and what is below them.

    Args:
        session: ours.
        spared: number and start of each.
    """
    children: dict[int, list[int]] = {}
    for pid, each in table.items():
        children.setdefault(each.parent, []).append(pid)
    found, waiting = set[int](), [us]
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            if pid == us or (pid, table[pid].start) in spared:  # a table read while processes come and go may be odd
                continue
            waiting.append(pid)
            if table[pid].session != session:
                found.add(pid)
    return found


class Adoption:
    """While it is open, orphans below us become our children (Linux only)."""

    def __init__(self) -> None:
        self._spared: frozenset[tuple[int, str]] = frozenset()

    def open(self) -> None:
        """Begin; who is our child already is nobody's orphan."""
        if sys.platform == "linux":
            self._spared = frozenset((pid, each.start) for pid, each in seats().items() if each.parent == os.getpid())
            _adopt(True)

    def close(self) -> None:
        """End it; what is below us stays there."""
        if sys.platform == "linux":
            _adopt(False)

    def descendants(self) -> Iterator[int]:
        """Yield those that still run."""
        if sys.platform == "linux":
            table = seats()
            found = below(os.getpid(), os.getsid(0), table, self._spared)
            yield from (pid for pid in found if table[pid].state != "Z")

    def bury(self, own: Collection[int]) -> None:
        """Take note of adopted children that have ended, or they would stay in the kernel's table.

        Args:
            own: the children that we have started, whose end somebody here waits for.
        """
        if sys.platform != "linux":
            return
        with suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                pid = ended.si_pid
                place = seat(pid)
                known = pid in own or place is None or place.session == os.getsid(0)
                if known or (pid, place.start if place else "") in self._spared:
                    return  # the next look comes after its own was taken
                os.waitpid(pid, os.WNOHANG)


def seats() -> dict[int, Seat]:
    """Return the place of every process of the machine."""
    numbers = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {pid: place for pid in numbers if (place := seat(pid))}


def _adopt(yes: bool) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0)
