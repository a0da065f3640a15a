"""What happens on the nodes: their ranks start, print and end; agents end; a node is lost.

Everything that happens is put into the node's state here. The first failure begins the end of all the others.
"""

import math
import signal
import time
from collections.abc import Mapping, Sequence

from launcher.base import timings
from launcher.follow.cause.failure import RankEnd
from launcher.follow.cause.torchrun_words import death_signal
from launcher.follow.clocks import ours, unsure_s
from launcher.follow.display import Display
from launcher.follow.frames import Event, Lines
from launcher.follow.node_state import LIVE_S, NodeState, ToldRank, ToldToGo
from launcher.follow.out_of_memory import ask_if_killed
from launcher.follow.shutdown import Shutdown
from launcher.follow.signal_inbox import SignalInbox
from launcher.follow.unseen import all_well


class EventIntake:
    """Takes in what the nodes print, and how their ranks and agents end."""

    def __init__(self, inbox: SignalInbox, shutdown: Shutdown, display: Display) -> None:
        self._inbox = inbox
        self._shutdown = shutdown
        self._display = display
        self.failed_first = False
        """Whether a failure was seen before anybody asked for the job's end."""

    def read(self, state: NodeState) -> None:
        """Take in what a node has printed since; `state.open` is False at the end of its output."""
        data = state.node.read()
        for item in state.reader.feed(data):
            if isinstance(item, Event):
                self._event(state, item)
            else:
                self._lines(state, item)
        if state.log_trouble and not state.log_trouble_noted:
            state.log_trouble_noted = True
            self._display.note(f"{state.log.name} is not complete: {state.log_trouble}; the job goes on")
        if not data:
            state.open = False

    def notice_end(self, state: NodeState) -> None:
        """Take in that a node is lost, or that its agent has ended."""
        if state.node.lost and state.agent_end is None:
            state.agent_end = lost_end(state, at=time.time())
            self._failed()
            return
        code = state.node.poll()
        if code is None or state.agent_end is not None:
            return
        if state.open and code == 0:
            return  # its last words are still to be read
        state.agent_end = agent_end(state, code, stopped_by_us=self._shutdown.begun, at=time.time())
        ask_if_killed(state, state.agent_end)
        if code == -signal.SIGTERM:
            self._told_to_go(state, "SIGTERM")
        if code != 0:
            state.node.kill()  # an agent that was killed leaves its ranks behind
            self._failed(told=state.told_to_go is not None or _ended_as_told(state))

    def notice_removal(self, states: Sequence[NodeState], away: Mapping[str, str]) -> None:
        """End the others if a container was removed that they may wait for; `away`: by node, why it tells nothing."""
        if any(state.name in away and not state.open and not all_well(state) for state in states):
            self._failed()

    def _lines(self, state: NodeState, lines: Lines) -> None:
        state.keep(lines)
        # The failure's box says better what torchrun itself says: that is in the log, and not on the screen.
        if lines.rank is not None:
            self._display.output(state.name, lines.rank, lines.texts)
            return
        for text in lines.texts:
            told = death_signal(text.decode(errors="replace"))
            if told:
                self._told_to_go(state, told)

    def _told_to_go(self, state: NodeState, signal_name: str) -> None:
        """Take in that a node's agent was told to end; if it wasn't by us, let all the ranks end in their own time."""
        if state.told_to_go or self._shutdown.begun or self._inbox.stop_requests:
            return
        state.told_to_go = ToldToGo(node=state.name, signal=signal_name, at=time.time())
        if not self.failed_first:
            self._display.note(f"{state.name} was told to go ({signal_name}); the others are asked to end as well")
            self._shutdown.after_told()

    def _event(self, state: NodeState, event: Event) -> None:
        kind = event.fields["event"]
        if kind == "started":
            timings.mark("first rank started")
            state.node.ranks[event.rank] = event.fields["pid"]
            at = ours(event.fields.get("at"), state.node)
            state.says_told = at is not None
            state.live = at is not None and time.time() - at < LIVE_S
            self._shutdown.ask_late_rank(state, event.rank)
        elif kind == "told":
            told_at = ours(event.fields["at"], state.node) or 0.0
            state.told_ranks[event.rank] = ToldRank(
                at=told_at, state=str(event.fields.get("state", "")), catches=bool(event.fields.get("catches"))
            )
        elif kind == "exited":
            state.refused = state.refused or bool(event.fields.get("refused"))
            told_by_us = self._shutdown.begun or (self._shutdown.asked and bool(event.fields.get("told")))
            end = rank_end(state, event, stopped_by_us=told_by_us, at=time.time())
            ask_if_killed(state, end)
            state.ends[event.rank] = end
            if end.exit_code != 0:
                self._failed(told=end.told)

    def _failed(self, *, told: bool = False) -> None:
        """Begin the end of all the others, unless it was asked for already.

        Args:
            told: what has ended was told to end; the others may be about to end by themselves.
        """
        if self._inbox.stop_requests or self._shutdown.asked:
            return
        self.failed_first = True
        self._shutdown.after_failure(told=told)


def _ended_as_told(state: NodeState) -> bool:
    """Return whether the agent's end follows from its ranks', which were told to end."""
    bad = [end for end in state.ends.values() if end.exit_code != 0]
    return bool(bad) and all(end.told for end in bad)


def rank_end(state: NodeState, event: Event, *, stopped_by_us: bool, at: float) -> RankEnd:
    """Return how a rank ended, from what its parent process reports; older ones report less."""
    fields, node = event.fields, state.node
    told = fields.get("told")
    return RankEnd(
        node=state.name,
        rank=event.rank,
        exit_code=fields["exit_code"],
        signal=fields["signal"],
        ended_at=ours(fields.get("at"), node) or at,
        error_at=ours(fields["error_at"], node),
        told_at=ours(told["at"], node) if told else None,
        stopped_by_us=stopped_by_us and (told is not None or "told" not in fields),
        # An older parent's report has no time of its own, and may come from a log that is hours old.
        unsure_s=unsure_s(node) if "at" in fields or fields["error_at"] else math.inf,
        lines=tuple(state.rank_lines.get(event.rank, ())),
    )


def agent_end(state: NodeState, code: int, *, stopped_by_us: bool, at: float) -> RankEnd:
    """Return how a node's agent ended; a negative `code` is the signal that ended it."""
    return RankEnd(
        node=state.name,
        rank=None,
        exit_code=code if code >= 0 else 128 - code,
        signal=signal.Signals(-code).name if code < 0 else None,
        ended_at=at,
        stopped_by_us=stopped_by_us,
        unsure_s=math.inf if code < 0 else unsure_s(state.node),
        lines=tuple(state.own_lines),
    )


def lost_end(state: NodeState, *, at: float) -> RankEnd:
    """Return the end of a node that is lost, which its runtime has found out (`RunningNode.lost`)."""
    return RankEnd(node=state.name, rank=None, exit_code=1, ended_at=at, unsure_s=math.inf, lost=state.node.lost)
