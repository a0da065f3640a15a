"""`summary.json` and `report.html`, which are written at a job's end, whatever the end was."""

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from launcher.base.atomic_file import write_json
from launcher.follow.outcome import Outcome
from launcher.job.container import RUN
from launcher.job.folder import JobFolder
from launcher.job.plan import Plan
from trainer.reporting.page import render
from trainer.reporting.summary import RunFigures, read_records, summarize


def finish(
    folder: JobFolder,
    plan: Plan,
    outcome: Outcome,
    started_at: float,
    say: Callable[[str], None],
    *,
    clock_s: float = 0.0,
    ended_at: float | None = None,
) -> dict[str, Any]:
    """Write both files and return the summary. If the disk refuses them, say so; the outcome stays what it is.

    Args:
        clock_s: how many seconds the clock of the machine that wrote the metrics is ahead of ours.
        ended_at: unix time; None: now.
    """
    records = read_records(folder.metrics)
    figures = summarize(records)
    if figures.first_step_at is not None:
        figures = replace(figures, first_step_at=figures.first_step_at - clock_s)
    content = summary(folder, plan, outcome, figures, started_at, ended_at or time.time())
    try:
        write_json(folder.summary, content)
        folder.report.write_text(render(records, content), encoding="utf-8")
    except OSError as error:
        say(f"summary.json and report.html can't be written to {folder.path}: {error.strerror}")
    return content


def summary(
    folder: JobFolder, plan: Plan, outcome: Outcome, figures: RunFigures, started_at: float, ended_at: float
) -> dict[str, Any]:
    """Return the summary of a job; what the script didn't report is None.

    Args:
        started_at: unix time of the launcher's start; `first_step_s` and `wall_s` count from it.
        ended_at: unix time of the job's end.
    """
    first = figures.first_step_at
    return {
        "name": folder.name,
        "state": outcome.state,
        "exit_code": int(outcome.exit_code),
        "nodes": [node.name for node in plan.nodes],
        "world_size": plan.world_size,
        "backend": plan.backend,
        "image": plan.nodes[0].image,
        "started_at": datetime.fromtimestamp(started_at, UTC).isoformat(timespec="milliseconds"),
        "first_step_s": round(first - started_at, 3) if first is not None else None,
        "wall_s": round(ended_at - started_at, 3),
        "restarts": 0,
        "images_per_s": figures.images_per_s,
        "test_accuracy": figures.test_accuracy,
        "epochs": figures.epochs,
        "checkpoint": _inside(folder, figures.checkpoint),
        "failure": asdict(outcome.failure) if outcome.failure else None,
    }


def _inside(folder: JobFolder, checkpoint: str | None) -> str | None:
    """Return a checkpoint's path relative to the job's folder, which may be moved as a whole."""
    if checkpoint is None:
        return None
    path = Path(checkpoint)
    own = (top for top in (folder.path, RUN) if path.is_relative_to(top))
    return next((str(path.relative_to(top)) for top in own), checkpoint)
