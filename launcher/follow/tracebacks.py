"""What the last lines of a rank say about the exception that ended it. Pure."""

import re
from collections.abc import Sequence

_RANK_PREFIX = re.compile(r"^\[rank\d+\]:\s?")  # torch puts it before every line of an uncaught exception
_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Exit|Interrupt|Warning|Failure|Timeout|StopIteration)\b")
# What the C++ and C libraries print about a thread that ends with Python, as one of Gloo's may (docs/decisions/0029).
_LATE_ABORT = (
    "terminate called without an active exception",
    "terminate called recursively",
    "FATAL: exception not rethrown",
)
_DUMP = "Fatal Python error: Aborted"  # the first line of what PYTHONFAULTHANDLER prints then; it goes on to the end


def exception_line(lines: Sequence[str]) -> str | None:
    """Return the line that names the exception, after the last traceback in `lines`."""
    bare = [_RANK_PREFIX.sub("", line) for line in lines]
    starts = [number for number, line in enumerate(bare) if line.startswith("Traceback (most recent call last)")]
    if not starts:
        return None
    after = [line for line in bare[starts[-1] + 1 :] if line and not line[0].isspace()]
    return next((line for line in after if _EXCEPTION.match(line)), after[0] if after else None)


def has_late_abort(lines: Sequence[str]) -> bool:
    """Return whether the lines have the words of an abort as it happens to Gloo's threads while Python ends."""
    return any(line.strip() in _LATE_ABORT for line in lines)


def before_late_abort(lines: Sequence[str]) -> tuple[str, ...] | None:
    """Return what was printed before such an abort if that ends with an uncaught exception; else None.

    If anything was printed after the exception, the program had handled it, and the abort is an event of its own.
    """
    dump = next((number for number, line in enumerate(lines) if line.startswith(_DUMP)), len(lines))
    before = list(lines[:dump])
    aborted = False
    while before and (not before[-1].strip() or before[-1].strip() in _LATE_ABORT):
        aborted |= bool(before.pop().strip())
    if not (aborted and before):
        return None
    uncaught = _RANK_PREFIX.match(before[-1]) or before[-1] == exception_line(before)
    return tuple(before) if uncaught else None
