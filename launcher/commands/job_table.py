"""The table of `make status`: one line a job, wherever it runs."""

from collections.abc import Sequence

from launcher.base.terminal import in_one_line
from launcher.follow.progress import Progress

_HEAD = ("job", "state", "age", "step", "nodes")


def show(jobs: Sequence[tuple[str, ...]]) -> None:
    """Print the jobs, a column for each of name, state, age, step and nodes."""
    rows = [tuple(map(in_one_line, row)) for row in (_HEAD, *jobs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:  # one line each, however long: users copy names from here into NAME=
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def step_of(progress: Progress) -> str:
    """Return how far a job is, for its line; empty where it doesn't say."""
    if progress.step is None:
        return ""
    total = f"/{progress.total_steps}" if progress.total_steps else ""
    return f"{progress.step}{total}" + (f", epoch {progress.epoch}" if progress.epoch is not None else "")
