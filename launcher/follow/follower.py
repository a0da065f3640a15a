"""Carry a plan out: start every node, follow them all, end everything at the first failure or on request.

`Follower` is the loop. What it calls is each in a file of its own:

- `events`: what happens on the nodes. Here the end of a rank or an agent is noticed, and that a node is lost. (Its
  runtime has found that out: `RunningNode.lost`.)
- `signal_inbox`: what a signal means; `signal_ladder`: how it is answered.
- `shutdown`: how ranks are ended, and how patiently.
- `presence`: which nodes are waited for; `silence`: a script that says nothing for long; `out_of_memory`: why a rank
  was killed.
- `outcome`: how the job ended, decided from all of it; `cause/`: why it failed.
"""

import selectors
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from launcher.follow.cause import hints, missing_module, relative_import
from launcher.follow.cause.failure import Failure
from launcher.follow.display import Display
from launcher.follow.events import EventIntake
from launcher.follow.node_state import NodeState, ends, told_to_go, unended
from launcher.follow.out_of_memory import await_answers
from launcher.follow.outcome import Evidence, Outcome, decide
from launcher.follow.presence import Presence
from launcher.follow.progress import MetricsTail, Progress
from launcher.follow.runtime import NotStartedError, Runtime
from launcher.follow.shutdown import Shutdown
from launcher.follow.signal_inbox import Role, SignalInbox
from launcher.follow.signal_ladder import SignalLadder
from launcher.follow.silence import Silence
from launcher.follow.unseen import unseen
from launcher.job.folder import JobFolder
from launcher.job.plan import Plan

_TICK_S = 0.1
_PAUSE_S = 0.005
"""Between two readings: ranks that print much are read in large portions, which cost little more than small ones."""
_LOOK_S = 0.25
"""How often the metrics are read."""


class Follower:
    """Run one job from start to end."""

    def __init__(
        self,
        plan: Plan,
        folder: JobFolder,
        runtime: Runtime,
        display: Display,
        *,
        only_follows: bool = False,
        received: Sequence[int] = (),
        on_stop: Callable[[], None] | None = None,
    ) -> None:
        """Args:
        only_follows: Ctrl-C ends the following, and not the job.
        received: signals that count as received already; SIGTERM: stop the job gracefully.
        on_stop: called in a thread once the user has asked for the job's end, unless something had failed before.
        """
        self._on_stop = on_stop
        self._plan = plan
        self._folder = folder
        self._runtime = runtime
        self._display = display
        self._metrics = MetricsTail(folder.metrics)
        self._nodes: list[NodeState] = []
        self._start_failure: Failure | None = None
        role = Role(only_follows=only_follows, stops=bool(received), survives=runtime.survives)
        self._inbox = SignalInbox(role, received)
        self._shutdown = Shutdown(self._nodes)
        self._ladder = SignalLadder(self._inbox, self._nodes, self._shutdown, display.note, bundled=plan.bundled)
        self._events = EventIntake(self._inbox, self._shutdown, display)
        self._presence = Presence(self._nodes, runtime, display.note)
        self._silence = Silence(self._nodes, display.note, applies=not plan.bundled and not plan.own_processes)
        self._selector = selectors.DefaultSelector()

    def run(self) -> Outcome:
        """Start all nodes, follow them to the end, leave nothing behind."""
        with self._inbox.receiving():
            try:
                if self._start():
                    self._follow()
            except BaseException:
                # A mistake of ours is no reason to end training that can do without us.
                self._close(leave=self._runtime.survives)
                raise
            self._close(leave=self._inbox.detached_by is not None)
            if not self._inbox.decides:  # else the outcome is certain, whatever the nodes would answer
                await_answers(self._nodes, interrupted=lambda: self._inbox.decides)
                self._inbox.clear()  # Ctrl-C has ended that wait, and changes nothing about the job's end
        outcome = decide(self._evidence())
        failure = outcome.failure
        for advice in (missing_module, relative_import):
            failure = failure and advice.explained(failure, self._plan)
        return replace(outcome, failure=failure)

    def _start(self) -> bool:
        """Start every node, or none: return False if one can't be started."""
        try:
            nodes = self._runtime.start(self._plan.nodes, self._plan.port)
        except NotStartedError as error:
            self._start_failure = Failure(
                node=error.node,
                rank=None,
                exit_code=None,
                signal=None,
                reason=str(error),
                log_tail=(),
                hint=hints.of_text(str(error)),
            )
            return False
        for node in nodes:
            state = NodeState.logging_to(self._folder.logs / f"{node.plan.name}.log", node)
            self._nodes.append(state)
            self._selector.register(node, selectors.EVENT_READ, state)
        return True

    def _follow(self) -> None:
        started, looked = time.monotonic(), 0.0
        while self._inbox.detached_by is None and any(each.going for each in self._nodes) and not self._given_up():
            for key, _ in self._selector.select(_TICK_S):
                self._read(key.data)
            time.sleep(_PAUSE_S)
            now = time.monotonic()
            for each in self._nodes:
                self._events.notice_end(each)
            self._events.notice_removal(self._nodes, self._runtime.unseen())
            self._ladder.answer(followed_s=now - started)
            self._tell_of_stop()
            self._shutdown.run_due(now)
            if now - looked >= _LOOK_S:
                looked = now
                progress = self._metrics.look()
                self._display.progress(progress)
                self._presence.name_away()
                if not (self._shutdown.begun or self._shutdown.asked):
                    self._silence.look(now, reported=progress != Progress())
            if not self._shutdown.begun:
                self._presence.name_missing(followed_s=now - started)
        for each in self._nodes:  # an agent may have ended since the last look
            self._events.notice_end(each)

    def _tell_of_stop(self) -> None:
        if self._on_stop and self._inbox.stop_requests and not self._events.failed_first:
            threading.Thread(target=self._on_stop, daemon=True).start()  # a node out of reach makes it wait
            self._on_stop = None

    def _read(self, state: NodeState) -> None:
        self._events.read(state)
        if not state.open:
            self._selector.unregister(state.node)

    def _given_up(self) -> bool:
        """Return whether everything was killed, and what still doesn't end is out of reach; if so, name it."""
        if not self._shutdown.given_up():
            return False
        names = [each.name for each in self._nodes if each.going]
        self._display.note(f"{', '.join(names)}: not seen to end; make stop NAME={self._plan.name} tries again")
        return True

    def _close(self, *, leave: bool) -> None:
        """Let go of everything; end it first, unless `leave`: then it goes on."""
        ended = 0
        if leave:
            self._runtime.release()
        else:
            for each in self._nodes:
                each.node.kill()
            ended = self._runtime.sweep()
        for each in self._nodes:
            with suppress(OSError):  # a full disk, which the user was told when it began
                each.log.close()
        self._display.progress(self._metrics.look())
        self._presence.tell_news()
        if ended:
            self._display.note(f"{ended} process(es) that the job had left behind were ended")

    def _evidence(self) -> Evidence:
        requests = self._inbox.stop_requests
        return Evidence(
            start_failure=self._start_failure,
            detached_by=self._inbox.detached_by,
            stopped_by=requests[0] if requests else None,
            ends=tuple(end for each in self._nodes for end in ends(each)),
            out_of_memory=any(each.out_of_memory for each in self._nodes),
            refused=any(each.refused for each in self._nodes),
            bundled=self._plan.bundled,
            failed_first=self._events.failed_first,
            unended=tuple(
                rank for each in self._nodes for rank in unended(each, away=each.name in self._presence.away)
            ),
            told=tuple(told for each in self._nodes if (told := told_to_go(each))),
            addresses={node.name: node.address for node in self._plan.nodes},
            unseen=unseen(self._plan.nodes, self._nodes, self._runtime.unseen()),
        )
