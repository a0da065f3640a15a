"""What is shown last: the failure's box, or that nobody knows how it ended, then the table."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.follow.outcome import Outcome
from launcher.follow.show.closing import show_end
from launcher.job.folder import JobFolder
from tests.support.cluster.cluster_job import FAILED, SUCCEEDED, UNKNOWN

NOWHERE = replace(FAILED, failure=replace(FAILED.failure, node=None, rank=None))  # type: ignore[type-var]
UNKNOWN_LINE = "nobody knows how the job ended (gone); its logs and checkpoints, as far as they came: /runs/job"


class Shown:
    """A screen that remembers what it was told to show."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *words: self.calls.append((name, *words))


@pytest.mark.parametrize(
    ("outcome", "first"),
    [
        (SUCCEEDED, []),
        (FAILED, [("failure", FAILED.failure, "/runs/job/logs/node1.log")]),
        (NOWHERE, [("failure", NOWHERE.failure, "/runs/job/logs")]),
        (UNKNOWN, [("note", UNKNOWN_LINE)]),
    ],
)
def test_the_end_comes_before_the_table(outcome: Outcome, first: list[tuple[Any, ...]]) -> None:
    screen: Any = Shown()
    show_end(screen, outcome, {"state": outcome.state}, JobFolder(path=Path("/runs/job")))
    assert screen.calls == [*first, ("result", {"state": outcome.state}, "/runs/job/report.html")]
