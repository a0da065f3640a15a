"""The figures in a run's metrics.jsonl. Free of torch: the launcher reads any script's records with it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

LARGEST = 1e30
"""A value from here on counts as garbage, and its record as one without it: no sum of such figures is infinite."""
MOST_STEPS = 1 << 53
"""From here on a float can't hold a count exactly, and no run counts that far."""


@dataclass(frozen=True, kw_only=True)
class RunFigures:
    """What the records say; None where they don't."""

    images_per_s: float | None
    """Training images of all ranks together per second, median over steady epochs."""
    test_accuracy: float | None
    """The last one, 0..1."""
    epochs: int | None
    """Completed."""
    first_step_at: float | None
    """Unix time at the end of the first optimizer step."""
    step: int | None
    """The last optimizer step on record."""
    checkpoint: str | None
    """Path of the last checkpoint on record."""
    loss: float | None
    """The last training loss."""


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the JSON objects in a metrics.jsonl, one per line; none if there is no such file.

    A line that is torn, or not an object, is skipped.
    """
    try:
        lines = path.read_bytes().split(b"\n") if path.is_file() else []  # a pipe would be waited for
    except OSError:
        return []
    return [record for line in lines if isinstance(record := parse_line(line), dict)]


def parse_line(line: bytes) -> Any:
    """Return the line's JSON value; None if it has none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def number(record: Mapping[str, Any], key: str) -> float | None:
    """Return `record[key]` if that is a number that can be meant, else None."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) and abs(value) < LARGEST else None
    except OverflowError:  # a whole number beyond a float's range
        return None


def summarize(records: Sequence[Mapping[str, Any]]) -> RunFigures:
    """Return the figures of a run. Never raises, whatever the records contain."""
    epochs = [record for record in records if record.get("kind") == "epoch"]
    others = [record for record in records if record.get("kind") != "epoch"]
    stepped = [record for record in records if (number(record, "step") or 0) >= 1]
    return RunFigures(
        images_per_s=_steady(_numbers(epochs, "images_per_s")) or _steady(_numbers(others, "images_per_s")),
        test_accuracy=_last(_numbers(records, "test_accuracy")),
        epochs=_count(_numbers(epochs, "epoch")),
        first_step_at=next(iter(_numbers(stepped, "at")), None),
        step=_count(_numbers(stepped, "step")),
        checkpoint=last_checkpoint(records, lambda _: True),
        loss=_last(_numbers(records, "loss")),
    )


def last_checkpoint(records: Sequence[Mapping[str, Any]], exists: Callable[[str], bool]) -> str | None:
    """Return the path of the last checkpoint on record that there is; None if there is none."""
    paths = (record.get("path") for record in reversed(records) if record.get("event") == "checkpoint")
    return next((path for path in paths if isinstance(path, str) and exists(path)), None)


def _numbers(records: Iterable[Mapping[str, Any]], key: str) -> list[float]:
    return [value for record in records if (value := number(record, key)) is not None]


def _steady(rates: list[float]) -> float | None:
    """Return the median without the first rate, which includes warming up."""
    return median(rates[1:] or rates) if rates else None


def _last(values: list[float]) -> float | None:
    return values[-1] if values else None


def _count(values: list[float]) -> int | None:
    return next((int(value) for value in reversed(values) if abs(value) < MOST_STEPS), None)
