"""`summary.json` and `report.html`, which are written at a job's end, whatever the end was."""

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from launcher.base.atomic_file import write_json
from launcher.follow.incidents import as_records
from launcher.follow.outcome import Outcome
from launcher.job.container import RUN
from launcher.job.folder import JobFolder
from launcher.job.plan import Plan
from launcher.on_node.job_folder import knows_more
from trainer.reporting.page import render
from trainer.reporting.summary import RunFigures, last_checkpoint, read_records, summarize

_CLOCKS_S = 1.0
"""A node's clock is known no better."""


def finish(
    folder: JobFolder,
    plan: Plan,
    outcome: Outcome,
    started_at: float,
    say: Callable[[str], None],
    *,
    clock_s: float = 0.0,
    ended_at: float | None,
) -> dict[str, Any]:
    """Write both files and return the summary. If the disk refuses them, say so; the outcome stays what it is.

    A summary that is there already, and knows more of the job's end, stays.

    Args:
        clock_s: how many seconds the clock of the machine that wrote the metrics is ahead of ours.
        ended_at: unix time; None: not known.
    """
    records = with_incidents(folder, outcome, clock_s=clock_s)
    checkpoint = last_checkpoint(records, lambda path: _may_be_there(folder, path))
    figures = replace(summarize(records), checkpoint=checkpoint)
    if figures.first_step_at is not None:
        figures = replace(figures, first_step_at=figures.first_step_at - clock_s)
    content = summary(folder, plan, outcome, figures, started_at, ended_at)
    known = written(folder)
    if knows_more(known, content):
        return dict(known)
    try:
        write_json(folder.summary, content)
        folder.report.write_text(render(records, content), encoding="utf-8")
    except OSError as error:
        say(f"summary.json and report.html can't be written to {folder.path}: {error.strerror}")
    return content


def written(folder: JobFolder) -> Any:
    """Return what the job's `summary.json` holds; None if there is none that can be read."""
    try:
        return json.loads(folder.summary.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def summary(
    folder: JobFolder, plan: Plan, outcome: Outcome, figures: RunFigures, started_at: float, ended_at: float | None
) -> dict[str, Any]:
    """Return the summary of a job; what the script didn't report is None.

    Args:
        started_at: unix time of the launcher's start; `first_step_s` and `wall_s` count from it.
        ended_at: unix time of the job's end; None: not known.
    """
    return {
        "name": folder.name,
        "state": outcome.state,
        "exit_code": int(outcome.exit_code),
        "nodes": [node.name for node in plan.nodes],
        "world_size": plan.world_size,
        "backend": plan.backend,
        "image": plan.nodes[0].image,
        "started_at": datetime.fromtimestamp(started_at, UTC).isoformat(timespec="milliseconds"),
        "first_step_s": first_step_s(figures.first_step_at, started_at, ended_at),
        "wall_s": round(ended_at - started_at, 3) if ended_at is not None else None,
        "restarts": 0,
        "images_per_s": figures.images_per_s,
        "test_accuracy": figures.test_accuracy,
        "epochs": figures.epochs,
        "checkpoint": _inside(folder, figures.checkpoint),
        "incidents": [asdict(each) for each in outcome.incidents],
        "failure": asdict(outcome.failure) if outcome.failure else None,
    }


def first_step_s(at: float | None, started_at: float, ended_at: float | None) -> float | None:
    """Return the seconds to the first step; None if that was not during the job: then `at` is no Unix time."""
    if at is None:
        return None
    latest = time.time() if ended_at is None else ended_at
    return round(at - started_at, 3) if started_at <= at <= latest + _CLOCKS_S else None


def with_incidents(folder: JobFolder, outcome: Outcome, *, clock_s: float = 0.0) -> list[dict[str, Any]]:
    """Append the job's incidents to its metrics, those that aren't there yet; return all records."""
    records = read_records(folder.metrics)
    new = [each for each in as_records(outcome.incidents, clock_s=clock_s) if each not in records]
    if new:
        with suppress(OSError), folder.metrics.open("ab+") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # whoever wrote it was killed in the middle of a line
                    file.write(b"\n")
            file.writelines(json.dumps(each).encode() + b"\n" for each in new)
    return [*records, *new]


def _may_be_there(folder: JobFolder, checkpoint: str) -> bool:
    """Return False if that checkpoint would be in the job's folder and is not; what is elsewhere isn't judged."""
    inside = _inside(folder, checkpoint)
    return inside is None or inside == checkpoint or os.path.exists(folder.path / inside)  # noqa: PTH110 - any string


def _inside(folder: JobFolder, checkpoint: str | None) -> str | None:
    """Return a checkpoint's path relative to the job's folder, which may be moved as a whole."""
    if checkpoint is None:
        return None
    path = Path(checkpoint)
    own = (top for top in (folder.own, folder.path, RUN) if path.is_relative_to(top))
    return next((str(path.relative_to(top)) for top in own), checkpoint)
