"""What the follower needs of a screen; `screen.Screen` is the one that users see."""

from typing import Protocol

from launcher.follow.progress import Progress


class Display(Protocol):
    """Where a followed job is shown."""

    def note(self, text: str) -> None:
        """Show a line of the launcher's own."""

    def line(self, node: str, rank: int, text: bytes) -> None:
        """Show a line that a rank printed."""

    def progress(self, progress: Progress) -> None:
        """Show how far the job is."""
