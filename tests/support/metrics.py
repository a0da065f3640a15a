"""Metrics of a run."""

import json
from pathlib import Path
from typing import Any


def records(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if kind in (line["kind"], line.get("event"))]
