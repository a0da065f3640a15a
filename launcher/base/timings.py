"""When what was done on the way to the first step, for whoever wants to know where the time goes.

RINGMASTER_START_TIMES=<file> has it written there; `make bench ONLY=launch` does.
"""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

VARIABLE = "RINGMASTER_START_TIMES"

_marks: list[tuple[str, float]] = []


def mark(done: str) -> None:
    """Note that `done` is done now; the first time counts."""
    if all(done != name for name, _ in _marks):
        _marks.append((done, time.time()))


def since(started_at: float) -> list[tuple[str, float]]:
    """What was done, and how many seconds after `started_at` (unix time), in order."""
    return [(name, round(at - started_at, 3)) for name, at in _marks]


def write(started_at: float) -> None:
    """Write it down where somebody asked for it."""
    path = os.environ.get(VARIABLE)
    if path:
        Path(path).write_text(json.dumps(dict(since(started_at))))


def durations(marks: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """How long each took: from the mark before it."""
    before = [0.0, *(at for _, at in marks)]
    return [(name, at - earlier) for (name, at), earlier in zip(marks, before, strict=False)]
