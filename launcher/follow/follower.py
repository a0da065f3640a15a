"""Carries a plan out: starts every node, follows them all, stops everything at the first failure or on request."""

import os
import selectors
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from launcher.base import timings
from launcher.base.errors import ExitCode
from launcher.follow.failure import Failure, RankEnd, root_cause
from launcher.follow.frames import Event, Line
from launcher.follow.node_state import Followed, ends
from launcher.follow.outcome import Outcome
from launcher.follow.progress import MetricsTail, Progress
from launcher.follow.runtime import NotStartedError, RunningNode, Runtime
from launcher.job.folder import JobFolder
from launcher.job.plan import Plan

_TICK_S = 0.1
_LOOK_S = 0.25
"""How often the metrics are looked at."""
_WAIT_S = 5.0
"""A node that hasn't joined by then is named; again after twice as long."""
_GATHER_S = 0.5
"""After the first failure: time for the other ranks' own reports, of which one may be the cause."""
_TERM_S = 2.0
"""From SIGTERM to SIGKILL. With _GATHER_S and a tick it keeps the promise of 5 s from failure to all stopped."""
_MEMORY_S = 8.0
"""Once all has stopped: so long the nodes are waited for that were asked whether memory had run out."""
_ECHO_S = 1.0
"""The same SIGTERM or SIGHUP again within this time is an echo of the first."""
_GIVE_UP_S = 3.0
"""After everything was killed: so long a node that can't be reached is waited for."""
_GRACE_S = 60.0
"""A graceful stop may take so long; then everything is killed."""


class Screen(Protocol):
    """What the supervisor shows."""

    def note(self, text: str) -> None: ...
    def line(self, node: str, rank: int, text: bytes) -> None: ...
    def progress(self, progress: Progress) -> None: ...


class Follower:
    """Runs one job from start to end."""

    def __init__(
        self,
        plan: Plan,
        folder: JobFolder,
        runtime: Runtime,
        screen: Screen,
        *,
        only_follows: bool = False,
        asked: Sequence[int] = (),
    ) -> None:
        """Args:
        only_follows: Ctrl-C ends the following, and not the job.
        asked: signals that count as received already; SIGTERM: stop it gracefully.
        """
        self._plan = plan
        self._folder = folder
        self._runtime = runtime
        self._screen = screen
        self._nodes: list[Followed] = []
        self._metrics = MetricsTail(folder.metrics)
        self._warned: set[str] = set()
        self._only_follows = only_follows
        self._asked: list[int] = list(asked)
        self._stops = bool(asked)
        """Whether we are here to stop the job: then a closed terminal is no reason not to."""
        self._asked_at = 0.0
        self._answered = 0
        self._detaching: int | None = None
        """The signal after which the job is left to itself."""
        self._away: set[str] = set()
        self._killed_at: float | None = None
        self._stopping = False
        """Whether the launcher has begun to end the ranks itself."""
        self._refused = False
        """Whether a rank's parent found that its program must not start."""
        self._start_failure: Failure | None = None
        self._then: list[tuple[float, Callable[[], None]]] = []
        self._selector = selectors.DefaultSelector()

    def run(self) -> Outcome:
        """Start all nodes, follow them to the end, leave nothing behind."""
        with self._signals():
            try:
                if self._start():
                    self._follow()
            except BaseException:
                # A mistake of ours is no reason to end training that can do without us.
                self._close(leave=self._runtime.survives)
                raise
            self._close(leave=self._detaching is not None)
            self._hear_of_memory()
        return self._outcome()

    def _close(self, *, leave: bool) -> None:
        """Let go of everything; end it first, unless it is to go on."""
        left = 0
        if leave:
            self._runtime.release()
        else:
            for each in self._nodes:
                each.node.kill()
            left = self._runtime.sweep()
        for each in self._nodes:
            with suppress(OSError):  # a full disk; it was said when it began
                each.log.close()
        self._screen.progress(self._metrics.look())
        if left:
            self._screen.note(f"{left} process(es) that the job had left behind were ended")

    def _start(self) -> bool:
        """Start every node, or none: False if one can't be started."""
        try:
            nodes = self._runtime.start(self._plan.nodes, self._plan.port)
        except NotStartedError as error:
            self._start_failure = Failure(
                node=error.node, rank=None, exit_code=None, signal=None, reason=str(error), log_tail=(), hint=None
            )
            return False
        for node in nodes:
            followed = _followed(node, self._folder.logs / f"{node.plan.name}.log")
            self._nodes.append(followed)
            self._selector.register(node, selectors.EVENT_READ, followed)
        return True

    def _follow(self) -> None:
        started, waited, looked = time.monotonic(), _WAIT_S, 0.0
        while self._detaching is None and any(each.going for each in self._nodes) and not self._given_up():
            for key, _ in self._selector.select(_TICK_S):
                self._take(key.data)
            now = time.monotonic()
            for each in self._nodes:
                self._notice_end(each)
            # Who was asked before we followed (`make stop`) waits until we have heard which ranks there are to ask.
            if self._asked_at or now - started >= _WAIT_S or all(each.node.ranks for each in self._nodes):
                self._obey()
            self._due(now)
            if now - looked >= _LOOK_S:
                looked = now
                self._screen.progress(self._metrics.look())
                self._name_away()
            if now - started >= waited and not self._stopping:
                waited *= 2
                self._name_missing(now - started)

    def _take(self, each: Followed) -> None:
        data = each.node.read()
        for item in each.reader.feed(data):
            if isinstance(item, Event):
                self._event(each, item)
            else:
                self._line(each, item)
        if each.log_trouble and each.node.plan.name not in self._warned:
            self._warned.add(each.node.plan.name)
            self._screen.note(f"{each.log.name} is not complete: {each.log_trouble}; the job goes on")
        if not data:
            each.open = False
            self._selector.unregister(each.node)

    def _line(self, each: Followed, line: Line) -> None:
        each.keep(line)
        # torchrun's own words repeat what the failure's box says better: the log has them, the screen doesn't.
        if line.rank is not None:
            self._screen.line(each.node.plan.name, line.rank, line.text)

    def _event(self, each: Followed, event: Event) -> None:
        if event.fields["event"] == "started":
            timings.mark("first rank started")
            each.node.ranks[event.rank] = event.fields["pid"]
            if self._stopping or self._answered:
                each.node.signal_ranks(signal.SIGTERM, only=event.rank)
            return
        self._refused = self._refused or bool(event.fields.get("refused"))
        end = RankEnd(
            node=each.node.plan.name,
            rank=event.rank,
            exit_code=event.fields["exit_code"],
            signal=event.fields["signal"],
            ended_at=time.time(),
            error_at=event.fields["error_at"],
            stopped_by_us=self._stopping,
            lines=tuple(each.rank_lines.get(event.rank, ())),
        )
        self._ask_for_memory(each, end)
        each.ends[event.rank] = end
        if end.exit_code != 0:
            self._stop_soon()

    def _ask_for_memory(self, each: Followed, end: RankEnd) -> None:
        """Whether it was killed for want of memory; in a thread, for the node may be too busy to answer soon."""
        if end.signal != "SIGKILL" or self._stopping or each.memory is not None:
            return

        def ask() -> None:
            each.out_of_memory = each.node.out_of_memory()

        each.memory = threading.Thread(target=ask, daemon=True)
        each.memory.start()

    def _given_up(self) -> bool:
        """Whether all was killed, and what still doesn't end is out of reach."""
        if self._killed_at is None or time.monotonic() - self._killed_at < _GIVE_UP_S:
            return False
        names = [each.node.plan.name for each in self._nodes if each.going]
        self._screen.note(f"{', '.join(names)}: not seen to end; make stop NAME={self._plan.name} tries again")
        return True

    def _notice_end(self, each: Followed) -> None:
        if each.node.lost and each.agent_end is None:
            each.agent_end = RankEnd(
                node=each.node.plan.name, rank=None, exit_code=1, ended_at=time.time(), lost=each.node.lost
            )
            self._stop_soon()
            return
        code = each.node.poll()
        if code is None or each.agent_end is not None:
            return
        if each.open and code == 0:
            return  # its last words are still to be read
        killed_by = signal.Signals(-code).name if code < 0 else None
        each.agent_end = RankEnd(
            node=each.node.plan.name,
            rank=None,
            exit_code=code if code >= 0 else 128 - code,
            signal=killed_by,
            ended_at=time.time(),
            stopped_by_us=self._stopping,
            lines=tuple(each.own_lines),
        )
        self._ask_for_memory(each, each.agent_end)
        if code != 0:
            each.node.kill()  # an agent that was killed leaves its ranks behind
            self._stop_soon()

    def _stop_soon(self) -> None:
        """The first failure: hear the other ranks out for a moment, then end them all."""
        if not self._stopping and not self._asked and not self._then:
            self._then.append((time.monotonic() + _GATHER_S, self._terminate))

    def _terminate(self) -> None:
        self._stopping = True
        for each in self._nodes:
            each.node.terminate()
        self._then.append((time.monotonic() + _TERM_S, self._kill))

    def _kill(self) -> None:
        self._stopping = True
        if self._killed_at is None:
            self._killed_at = time.monotonic()
        for each in self._nodes:
            each.node.kill()

    def _due(self, now: float) -> None:
        due = [(at, action) for at, action in self._then if at <= now]
        self._then = [(at, action) for at, action in self._then if at > now]
        for _, action in due:
            action()

    def _obey(self) -> None:
        """The ladder: once a graceful stop, twice stop now, three times kill."""
        while self._answered < len(self._asked):
            self._answered += 1
            if self._answered == 1:
                self._stop_gracefully(self._asked[0])
            elif self._answered == 2:
                self._screen.note("stopping now; once more: kill")
                self._terminate()
            else:
                self._screen.note("killing")
                self._kill()

    def _stop_gracefully(self, signum: int) -> None:
        if not any(each.node.ranks for each in self._nodes):
            if self._asked_at:
                self._screen.note("stopping: nothing had started yet")
                self._terminate()
                return
            # Of a job that has printed very much, what its ranks said of themselves at their start is gone.
            for each in self._nodes:
                each.node.terminate()
        does = (
            "stopping after this step, with a checkpoint" if self._plan.script is None else "asked the script to stop"
        )
        self._screen.note(f"{does}; Ctrl-C again: stop now")
        for each in self._nodes:
            each.node.signal_ranks(signal.SIGINT if signum == signal.SIGINT else signal.SIGTERM)
        self._then.append((time.monotonic() + _GRACE_S, self._kill))

    def _name_missing(self, seconds: float) -> None:
        """While a node is missing: who is waited for."""
        if all(each.node.ranks for each in self._nodes):
            return
        missing = [each.node.plan.name for each in self._nodes if not each.node.joined()]
        if missing:
            self._screen.note(f"waiting for {', '.join(missing)} to join ({seconds:.0f} s)")

    def _name_away(self) -> None:
        """Nodes out of reach, and those that are back."""
        away = set(self._runtime.watch())
        for name in sorted(away - self._away):
            self._screen.note(f"{name} doesn't answer; trying again (the job goes on meanwhile)")
        for name in sorted(self._away - away):
            self._screen.note(f"{name} answers again")
        self._away = away

    def _outcome(self) -> Outcome:
        if self._start_failure:
            return Outcome(state="failed", exit_code=ExitCode.NOT_STARTED, failure=self._start_failure, started=False)
        if self._detaching is not None:
            code = ExitCode.INTERRUPTED if self._detaching == signal.SIGINT else ExitCode.TERMINATED
            return Outcome(state="detached", exit_code=code)
        if self._asked:
            code = ExitCode.INTERRUPTED if self._asked[0] == signal.SIGINT else ExitCode.TERMINATED
            return Outcome(state="stopped", exit_code=code)
        failure = root_cause([end for each in self._nodes for end in ends(each)])
        if failure is None:
            return Outcome(state="succeeded", exit_code=ExitCode.SUCCEEDED)
        return Outcome(state="failed", exit_code=self._failed_code(failure), failure=failure)

    def _hear_of_memory(self) -> None:
        """Leave nodes that were asked the time to answer; Ctrl-C ends the wait, and changes nothing about the end."""
        if self._asked or self._detaching is not None:
            return  # nobody will say why
        until = time.monotonic() + _MEMORY_S
        for each in self._nodes:
            while each.memory is not None and each.memory.is_alive() and time.monotonic() < until:
                each.memory.join(_TICK_S)
                if self._asked or self._detaching is not None:
                    until = 0.0
        self._asked, self._detaching = [], None

    def _failed_code(self, failure: Failure) -> ExitCode:
        if failure.signal == "SIGKILL" and any(each.out_of_memory for each in self._nodes):
            return ExitCode.FAILED  # the program took it, whichever process the kernel then chose
        if failure.rank is None:
            return ExitCode.CLUSTER  # a node's agent died, or the nodes never met
        if self._refused:
            return ExitCode.NOT_STARTED
        # Only the bundled trainer's codes are Ringmaster's own; a user's script may mean anything by a 3.
        own = {ExitCode.USAGE, ExitCode.NOT_STARTED, ExitCode.CLUSTER}
        if self._plan.script is None and failure.exit_code in own:
            return ExitCode(failure.exit_code)
        return ExitCode.FAILED

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Note SIGINT, SIGTERM and SIGHUP (the terminal closed) instead of dying of them."""

        def ask(signum: int, _frame: object) -> None:
            # `kill` to a process group reaches us twice: make hands SIGTERM on to what it started.
            echo = signum != signal.SIGINT and time.monotonic() - self._asked_at < _ECHO_S
            hung_up = signum == signal.SIGHUP and self._runtime.survives
            if not hung_up:
                self._asked_at = time.monotonic()
            if self._only_follows or (hung_up and not self._stops):
                self._detaching = signum
            elif not echo and not hung_up:
                self._asked.append(signum)

        # What was ignored when we were started (`nohup`: SIGHUP) stays ignored.
        wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        heard = [each for each in wanted if signal.getsignal(each) != signal.SIG_IGN]
        before = {each: signal.signal(each, ask) for each in heard}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def _followed(node: RunningNode, path: Path) -> Followed:
    """A node, and its log here; a disk that refuses the log is no reason not to follow."""
    try:
        return Followed(node=node, log=path.open("wb"))
    except OSError as error:
        return Followed(node=node, log=open(os.devnull, "wb"), log_trouble=error.strerror)  # noqa: PTH123
