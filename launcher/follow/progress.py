"""How far a job is, read from `metrics.jsonl` while it grows, whoever writes it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainer.reporting.summary import MOST_STEPS, number, parse_line

_LONGEST_S = 1e9  # some thirty years: what lasts longer is a wrong record


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The newest figures; None for what the script doesn't report."""

    step: int | None = None
    total_steps: int | None = None
    epoch: int | None = None
    epochs: int | None = None
    loss: float | None = None
    images_per_s: float | None = None
    """All ranks together."""
    time_s: float | None = None
    first: tuple[int, float] | None = None
    """(step, time_s) of the first record that has both: the pace is counted from there, without the start-up."""

    def after(self, record: Mapping[str, Any]) -> "Progress":
        """Return the progress once `record` is known."""
        fields: dict[str, Any] = {}
        for name in ("step", "total_steps", "epoch", "epochs"):
            value = record.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and abs(value) < MOST_STEPS:
                fields[name] = value
        for name in ("loss", "images_per_s", "time_s"):
            value = number(record, name)
            if value is not None:
                fields[name] = value
        new = replace(self, **fields)
        if new.first is None and "step" in fields and "time_s" in fields:
            new = replace(new, first=(fields["step"], fields["time_s"]))
        return new

    @property
    def eta_s(self) -> float | None:
        """Seconds until the last step at the pace so far; None where the records make no sense of it."""
        if self.first is None or self.step is None or self.total_steps is None or self.time_s is None:
            return None
        steps, seconds = self.step - self.first[0], self.time_s - self.first[1]
        left = (self.total_steps - self.step) * seconds / steps if steps > 0 else -1.0
        return left if 0 <= left < _LONGEST_S else None


class MetricsTail:
    """Reads what was appended to `metrics.jsonl` since the last look."""

    def __init__(self, path: Path) -> None:
        self.progress = Progress()
        self._path = path
        self._offset = 0

    def look(self) -> Progress:
        """Take in the whole lines that are new; a line still being written waits for the next look."""
        if not self._path.is_file():  # a pipe would be waited for
            return self.progress
        try:
            with self._path.open("rb") as file:
                if file.seek(0, os.SEEK_END) < self._offset:  # written anew
                    self.progress, self._offset = Progress(), 0
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return self.progress
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            record = parse_line(line)
            if isinstance(record, dict):
                self.progress = self.progress.after(record)
        return self.progress
