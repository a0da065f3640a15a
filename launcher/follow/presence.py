"""Who is there: names nodes that haven't joined the job yet, and nodes that are out of reach."""

from collections.abc import Callable, Sequence

from launcher.follow.node_state import NodeState
from launcher.follow.runtime import Runtime

_JOIN_S = 5.0
"""When a node that hasn't joined is named; again after twice as long."""


class Presence:
    """Says which nodes the job is waiting for, each piece of news once."""

    def __init__(self, nodes: Sequence[NodeState], runtime: Runtime, note: Callable[[str], None]) -> None:
        """Args:
        nodes: the list that the follower fills once the nodes have started.
        """
        self._nodes = nodes
        self._runtime = runtime
        self._note = note
        self.away: set[str] = set()
        """The nodes that are out of reach."""
        self._next_s = _JOIN_S

    def name_missing(self, *, followed_s: float) -> None:
        """Name the nodes that haven't joined, if it is time to."""
        if followed_s < self._next_s:
            return
        self._next_s *= 2
        if all(each.node.ranks for each in self._nodes):
            return
        missing = [each.name for each in self._nodes if not each.node.joined()]
        if missing:
            self._note(f"waiting for {', '.join(missing)} to join ({followed_s:.0f} s)")

    def name_away(self) -> None:
        """Name the nodes that have gone out of reach, and those that are back."""
        away = set(self._runtime.watch())
        for name in sorted(away - self.away):
            self._note(f"{name} doesn't answer; trying again (the job goes on meanwhile)")
        for name in sorted(self.away - away):
            self._note(f"{name} answers again")
        self.away = away
        self.tell_news()

    def tell_news(self) -> None:
        """Say what the runtime has learned of the nodes."""
        for line in self._runtime.news():
            self._note(line)
