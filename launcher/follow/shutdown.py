"""How the launcher ends a job's ranks: asks them, terminates them, kills them, and how patient it is in between."""

import signal
import time
from collections.abc import Callable, Sequence

from launcher.follow.node_state import NodeState

_GATHER_S = 0.5
"""After the first failure: time for the other ranks' own reports, because one of those may be the cause."""
_TERM_S = 2.0
"""From SIGTERM to SIGKILL. With _GATHER_S and a tick it keeps the promise of 5 s from failure to all stopped."""
_CATCHING_S = 30.0
"""From SIGTERM to SIGKILL for a user's program that has a handler for SIGTERM: so long torchrun gives every program."""
_LOOK_S = 0.1
"""How often those are looked at, so that nobody waits for the dead."""
_GRACE_S = 60.0
"""How long a graceful stop may take; then everything is killed."""
_GIVE_UP_S = 3.0
"""How long to wait, once everything was killed, for a node that can't be reached."""


class Shutdown:
    """The end of a job's ranks, as far as the launcher brings it about."""

    def __init__(
        self, nodes: Sequence[NodeState], note: Callable[[str], None] = lambda _: None, *, bundled: bool = False
    ) -> None:
        """Args:
        nodes: the list that the follower fills once the nodes have started.
        note: shows a line to the user.
        bundled: the job runs the bundled trainer. It catches SIGTERM, but its checkpoints need all ranks: once one has
            failed there is nothing that the others could save.
        """
        self.begun = False
        """Whether the launcher has begun to end the ranks itself. A rank that ends from then on was stopped by us."""
        self.asked = False
        """Whether the ranks were asked to end in their own time."""
        self._nodes = nodes
        self._note = note
        self._bundled = bundled
        self._only_told = True
        """Whether all that has failed so far was told to end."""
        self._killed_at: float | None = None
        self._scheduled: list[tuple[float, Callable[[], None]]] = []

    def after_failure(self, *, told: bool) -> None:
        """At the first failure: hear the other ranks out for a moment, then end them all.

        Args:
            told: somebody had told it to end; it is no failure of its own.
        """
        self._only_told = self._only_told and told
        if not self.begun and not self._scheduled:
            self._schedule(_GATHER_S, self._end_the_others)

    def after_told(self) -> None:
        """When a node was told to go: let the ranks of all the others end in their own time too."""
        self.ask_ranks(signal.SIGTERM, but_told=True)

    def _end_the_others(self) -> None:
        if self._only_told and all(_all_told(each) for each in self._nodes if each.going):
            self._leave_them_time()  # somebody else ends the job: `make stop` on another machine
        else:
            self.terminate(patiently=not self._bundled)

    def ask_agents(self) -> None:
        """Ask every node's agent to end, and its ranks with it."""
        for each in self._nodes:
            each.node.terminate()

    def ask_ranks(self, signum: int, *, but_told: bool = False) -> None:
        """Hand `signum` to every rank's program, which may take its time; then kill what is left.

        Args:
            but_told: leave out nodes that were told to go, whose ranks have heard it from their agent.
        """
        for each in self._nodes:
            if not (but_told and each.told_to_go):
                each.node.signal_ranks(signum)
        self._leave_them_time()

    def _leave_them_time(self) -> None:
        if not self.asked:
            self.asked = True
            self._schedule(_GRACE_S, self.kill)

    def terminate(self, *, patiently: bool = False) -> None:
        """End everything with SIGTERM, and what ignores it with SIGKILL.

        Args:
            patiently: leave more time to programs that catch SIGTERM.
        """
        self.begun = True
        self.ask_agents()
        self._schedule(_TERM_S, self._kill_the_deaf if patiently else self.kill)

    def _kill_the_deaf(self) -> None:
        """Kill the nodes on which no program catches SIGTERM; leave the others their time, and say so."""
        names = [f"{each.name}:{rank}" for each in self._nodes for rank in catching(each)]
        if not names:
            self.kill()
            return
        for each in self._nodes:
            if not catching(each):
                each.node.kill()
        catch = "catches" if len(names) == 1 else "catch"
        self._note(f"waiting up to {_CATCHING_S:.0f} s for {', '.join(names)}, which {catch} SIGTERM")
        self._await_catching(time.monotonic() + _CATCHING_S - _TERM_S)

    def _await_catching(self, until: float) -> None:
        if time.monotonic() >= until or not any(catching(each) for each in self._nodes):
            self.kill()
        else:
            self._schedule(_LOOK_S, lambda: self._await_catching(until))

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
        if self.begun or self.asked:
            state.node.signal_ranks(signal.SIGTERM, only=rank)

    def _schedule(self, seconds: float, action: Callable[[], None]) -> None:
        self._scheduled.append((time.monotonic() + seconds, action))


def catching(state: NodeState) -> list[int]:
    """Return a node's ranks that were told to end, have a handler for that, and have not ended yet."""
    if not state.going:
        return []
    return [rank for rank, told in state.told_ranks.items() if told.catches and rank not in state.ends]


def _all_told(state: NodeState) -> bool:
    """Return whether each of a node's ranks was told to end, or has ended."""
    return all(rank in state.told_ranks or rank in state.ends for rank in state.node.ranks)
