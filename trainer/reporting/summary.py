"""The figures in a run's metrics.jsonl. Free of torch: the launcher reads any script's records with it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any


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
    """Return the JSON objects in a metrics.jsonl, one per line; none if the file is missing.

    A line that is torn, or not an object, is skipped.
    """
    try:
        lines = path.read_bytes().split(b"\n")
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
    """Return `record[key]` if that is a finite number, else None."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number beyond a float's range
        return None


def summarize(records: Sequence[Mapping[str, Any]]) -> RunFigures:
    """Return the figures of a run. Never raises, whatever the records contain."""
    epochs = [record for record in records if record.get("kind") == "epoch"]
    others = [record for record in records if record.get("kind") != "epoch"]
    checkpoints = [
        record["path"]
        for record in records
        if record.get("event") == "checkpoint" and isinstance(record.get("path"), str)
    ]
    stepped = [record for record in records if (number(record, "step") or 0) >= 1]
    return RunFigures(
        images_per_s=_steady(_numbers(epochs, "images_per_s")) or _steady(_numbers(others, "images_per_s")),
        test_accuracy=_last(_numbers(records, "test_accuracy")),
        epochs=_whole(_last(_numbers(epochs, "epoch"))),
        first_step_at=next(iter(_numbers(stepped, "at")), None),
        step=_whole(_last(_numbers(stepped, "step"))),
        checkpoint=checkpoints[-1] if checkpoints else None,
        loss=_last(_numbers(records, "loss")),
    )


def _numbers(records: Iterable[Mapping[str, Any]], key: str) -> list[float]:
    return [value for record in records if (value := number(record, key)) is not None]


def _steady(rates: list[float]) -> float | None:
    """Return the median without the first rate, which includes warming up."""
    return median(rates[1:] or rates) if rates else None


def _last(values: list[float]) -> float | None:
    return values[-1] if values else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
