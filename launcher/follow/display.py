"""What the follower needs of a screen; `screen.Screen` is the one that users see."""

from collections.abc import Sequence
from typing import Protocol

from launcher.follow.progress import Progress


class Display(Protocol):
    """Where a followed job is shown. None of these may wait for whoever reads it."""

    def note(self, text: str) -> None:
        """Show a line of the launcher's own."""

    def output(self, node: str, rank: int, lines: Sequence[bytes]) -> None:
        """Show lines that a rank printed."""

    def progress(self, progress: Progress) -> None:
        """Show how far the job is."""
