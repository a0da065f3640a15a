"""How the launcher ends a job's ranks: asks them, terminates them, kills them, and how patient it is in between."""

import signal
import time
from collections.abc import Callable, Sequence

from launcher.follow.node_state import NodeState

_GATHER_S = 0.5
"""After the first failure: time for the other ranks' own reports, because one of those may be the cause."""
_TERM_S = 2.0
"""From SIGTERM to SIGKILL. With _GATHER_S and a tick it keeps the promise of 5 s from failure to all stopped."""
_GRACE_S = 60.0
"""How long a graceful stop may take; then everything is killed."""
_GIVE_UP_S = 3.0
"""How long to wait, once everything was killed, for a node that can't be reached."""


class Shutdown:
    """The end of a job's ranks, as far as the launcher brings it about."""

    def __init__(self, nodes: Sequence[NodeState]) -> None:
        """Args:
        nodes: the list that the follower fills once the nodes have started.
        """
        self.begun = False
        """Whether the launcher has begun to end the ranks itself. A rank that ends from then on was stopped by us."""
        self._nodes = nodes
        self._asked = False
        """Whether the ranks were asked to end in their own time."""
        self._killed_at: float | None = None
        self._scheduled: list[tuple[float, Callable[[], None]]] = []

    def after_failure(self) -> None:
        """At the first failure: hear the other ranks out for a moment, then end them all."""
        if not self.begun and not self._scheduled:
            self._schedule(_GATHER_S, self.terminate)

    def ask_agents(self) -> None:
        """Ask every node's agent to end, and its ranks with it."""
        for each in self._nodes:
            each.node.terminate()

    def ask_ranks(self, signum: int) -> None:
        """Hand `signum` to every rank's program, which may take its time; then kill what is left."""
        self._asked = True
        for each in self._nodes:
            each.node.signal_ranks(signum)
        self._schedule(_GRACE_S, self.kill)

    def terminate(self) -> None:
        """End everything with SIGTERM, and what ignores it with SIGKILL."""
        self.begun = True
        self.ask_agents()
        self._schedule(_TERM_S, self.kill)

    def kill(self) -> None:
        """End everything at once."""
        self.begun = True
        if self._killed_at is None:
            self._killed_at = time.monotonic()
        for each in self._nodes:
            each.node.kill()

    def run_due(self, now: float) -> None:
        """Do what was scheduled for `now` or earlier."""
        due = [action for at, action in self._scheduled if at <= now]
        self._scheduled = [(at, action) for at, action in self._scheduled if at > now]
        for action in due:
            action()

    def given_up(self) -> bool:
        """Return whether everything was killed long enough ago: what still doesn't end is out of reach."""
        return self._killed_at is not None and time.monotonic() - self._killed_at >= _GIVE_UP_S

    def ask_late_rank(self, state: NodeState, rank: int) -> None:
        """Ask a rank that has just started to end, if the others were asked already."""
        if self.begun or self._asked:
            state.node.signal_ranks(signal.SIGTERM, only=rank)

    def _schedule(self, seconds: float, action: Callable[[], None]) -> None:
        self._scheduled.append((time.monotonic() + seconds, action))
