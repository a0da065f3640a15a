"""What a command says of a job at its end: its failure, or that nobody knows how it ended; and the closing table."""

from collections.abc import Mapping
from typing import Any

from launcher.base.caller import shown
from launcher.follow.outcome import Outcome
from launcher.follow.show.screen import Screen, logs_for
from launcher.job.folder import JobFolder


def show_end(screen: Screen, outcome: Outcome, summary: Mapping[str, Any], folder: JobFolder) -> None:
    """Show how the job ended, with the place of its logs."""
    failure = outcome.failure
    if outcome.state == "unknown":
        screen.note(unknown_line(outcome, folder))
    elif failure:
        screen.failure(failure, logs_for(failure, folder.logs))
    screen.result(summary, shown(folder.report))


def unknown_line(outcome: Outcome, folder: JobFolder) -> str:
    """Return in one line why nobody knows how the job ended, and where what is known of it is."""
    why = f" ({outcome.failure.reason})" if outcome.failure else ""
    return f"nobody knows how the job ended{why}; its logs and checkpoints, as far as they came: {shown(folder.path)}"
