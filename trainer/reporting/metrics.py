"""The run's record: one JSON object per line, which rank 0 writes as things happen."""

import json
import math
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

_START, _STARTED_AT = time.monotonic(), time.time()


def started_at() -> float:
    """Return the Unix time of the trainer's start: the import of this module."""
    return _STARTED_AT


def _plain(value: Any) -> Any:
    """Return a value that JSON has: NaN and infinity become null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


class MetricsWriter:
    """Appends to metrics.jsonl. Never raises for a full disk: training is worth more than its record."""

    def __init__(self, path: Path | None) -> None:
        """`path`: None writes nothing (the ranks other than 0)."""
        self._file: int | None = None
        self._broken = False
        if path is not None:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            # A killed predecessor may have left half a line, which must not swallow our first one.
            end = os.lseek(self._file, 0, os.SEEK_END)
            self._broken = end > 0 and os.pread(self._file, 1, end - 1) != b"\n"

    def write(self, kind: str, **fields: Any) -> None:
        """Write a record; `time_s` counts from the trainer's start."""
        if self._file is None:
            return
        times = {"time_s": round(time.monotonic() - _START, 3), "at": round(time.time(), 3)}
        record = {"kind": kind, **times, **{name: _plain(value) for name, value in fields.items()}}
        line = ("\n" if self._broken else "") + json.dumps(record) + "\n"
        try:
            self._broken = os.write(self._file, line.encode()) != len(line)
        except OSError as error:
            self._broken = True
            with suppress(OSError):  # standard error may be a file on the same disk
                print(f"trainer: warning: metrics.jsonl: {error.strerror}; this record is lost", file=sys.stderr)

    def event(self, name: str, **fields: Any) -> None:
        """Write a record of kind `event`."""
        self.write("event", event=name, **fields)
