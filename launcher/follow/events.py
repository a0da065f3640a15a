"""What happens on the nodes: their ranks start, print and end; agents end; a node is lost.

Everything that happens is put into the node's state here. The first failure begins the end of all the others.
"""

import signal
import time

from launcher.base import timings
from launcher.follow.display import Display
from launcher.follow.failure import RankEnd
from launcher.follow.frames import Event, Line
from launcher.follow.node_state import NodeState
from launcher.follow.out_of_memory import ask_if_killed
from launcher.follow.shutdown import Shutdown
from launcher.follow.signal_inbox import SignalInbox


class EventIntake:
    """Takes in what the nodes print, and how their ranks and agents end."""

    def __init__(self, inbox: SignalInbox, shutdown: Shutdown, display: Display) -> None:
        self._inbox = inbox
        self._shutdown = shutdown
        self._display = display

    def read(self, state: NodeState) -> None:
        """Take in what a node has printed since; `state.open` is False at the end of its output."""
        data = state.node.read()
        for item in state.reader.feed(data):
            if isinstance(item, Event):
                self._event(state, item)
            else:
                self._line(state, item)
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
        if code != 0:
            state.node.kill()  # an agent that was killed leaves its ranks behind
            self._failed()

    def _line(self, state: NodeState, line: Line) -> None:
        state.keep(line)
        # The failure's box says better what torchrun itself says: that is in the log, and not on the screen.
        if line.rank is not None:
            self._display.line(state.name, line.rank, line.text)

    def _event(self, state: NodeState, event: Event) -> None:
        if event.fields["event"] == "started":
            timings.mark("first rank started")
            state.node.ranks[event.rank] = event.fields["pid"]
            self._shutdown.ask_late_rank(state, event.rank)
            return
        state.refused = state.refused or bool(event.fields.get("refused"))
        end = rank_end(state, event, stopped_by_us=self._shutdown.begun, at=time.time())
        ask_if_killed(state, end)
        state.ends[event.rank] = end
        if end.exit_code != 0:
            self._failed()

    def _failed(self) -> None:
        """Begin the end of all the others, unless the user has asked for it already."""
        if not self._inbox.stop_requests:
            self._shutdown.after_failure()


def rank_end(state: NodeState, event: Event, *, stopped_by_us: bool, at: float) -> RankEnd:
    """Return how a rank ended, from what its parent process reports."""
    return RankEnd(
        node=state.name,
        rank=event.rank,
        exit_code=event.fields["exit_code"],
        signal=event.fields["signal"],
        ended_at=at,
        error_at=event.fields["error_at"],
        stopped_by_us=stopped_by_us,
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
        lines=tuple(state.own_lines),
    )


def lost_end(state: NodeState, *, at: float) -> RankEnd:
    """Return the end of a node that is lost, which its runtime has found out (`RunningNode.lost`)."""
    return RankEnd(node=state.name, rank=None, exit_code=1, ended_at=at, lost=state.node.lost)
