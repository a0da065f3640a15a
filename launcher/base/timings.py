"""When each phase on the way to the first step was done: where the time of a start goes.

With RINGMASTER_START_TIMES=<file> they are written to that file; `make bench ONLY=launch` uses it.
"""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

VARIABLE = "RINGMASTER_START_TIMES"

_marks: list[tuple[str, float]] = []


def mark(phase: str) -> None:
    """Note that `phase` is done now; only the first time counts."""
    if all(phase != name for name, _ in _marks):
        _marks.append((phase, time.time()))


def since(started_at: float) -> list[tuple[str, float]]:
    """Return the phases in order, each with the seconds from `started_at` (unix time) to its end."""
    return [(name, round(at - started_at, 3)) for name, at in _marks]


def write(started_at: float) -> None:
    """Write the phases to the file that the environment names, if it names one."""
    path = os.environ.get(VARIABLE)
    if path:
        Path(path).write_text(json.dumps(dict(since(started_at))))


def durations(marks: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return how many seconds each phase took, counted from the end of the one before."""
    before = [0.0, *(at for _, at in marks)]
    return [(name, at - earlier) for (name, at), earlier in zip(marks, before, strict=False)]
