"""Carries a plan out: starts every node, follows them all, stops everything at the first failure or on request."""

import selectors
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from launcher.errors import ExitCode, RingmasterError
from launcher.failure import Failure, RankEnd, root_cause
from launcher.followed import Followed, ends
from launcher.job import JobFolder
from launcher.plan import Plan
from launcher.progress import Follower, Progress
from launcher.runtime import Runtime
from launcher.stream import Event, Line

_TICK_S = 0.1
_LOOK_S = 0.25
"""How often the metrics are looked at."""
_WAIT_S = 5.0
"""A node that hasn't joined by then is named; again after twice as long."""
_GATHER_S = 0.5
"""After the first failure: time for the other ranks' own reports, of which one may be the cause."""
_TERM_S = 2.0
"""From SIGTERM to SIGKILL. With _GATHER_S and a tick it keeps the promise of 5 s from failure to all stopped."""
_ECHO_S = 1.0
"""The same SIGTERM or SIGHUP again within this time is an echo of the first."""
_GRACE_S = 60.0
"""A graceful stop may take so long; then everything is killed."""


class Screen(Protocol):
    """What the supervisor shows."""

    def note(self, text: str) -> None: ...
    def line(self, node: str, rank: int, text: bytes) -> None: ...
    def progress(self, progress: Progress) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended."""

    state: str
    """`succeeded`, `failed` or `stopped`."""
    exit_code: ExitCode
    failure: Failure | None = None


class Supervisor:
    """Runs one job from start to end."""

    def __init__(self, plan: Plan, folder: JobFolder, runtime: Runtime, screen: Screen) -> None:
        self._plan = plan
        self._folder = folder
        self._runtime = runtime
        self._screen = screen
        self._nodes: list[Followed] = []
        self._follower = Follower(folder.metrics)
        self._warned: set[str] = set()
        self._asked: list[int] = []
        self._asked_at = 0.0
        self._answered = 0
        self._stopping = False
        """Whether the launcher has begun to end the ranks itself."""
        self._start_failure: Failure | None = None
        self._then: list[tuple[float, Callable[[], None]]] = []
        self._selector = selectors.DefaultSelector()

    def run(self) -> Outcome:
        """Start all nodes, follow them to the end, leave nothing behind."""
        with self._signals():
            try:
                if self._start():
                    self._follow()
            finally:
                for each in self._nodes:
                    each.node.kill()
                left = self._runtime.sweep()
                for each in self._nodes:
                    with suppress(OSError):  # a full disk; it was said when it began
                        each.log.close()
                self._screen.progress(self._follower.look())
        if left:
            self._screen.note(f"{left} process(es) that the job had left behind were ended")
        return self._outcome()

    def _start(self) -> bool:
        """Start every node, or none: False if one can't be started."""
        for plan in self._plan.nodes:
            try:
                node = self._runtime.start(plan, self._plan.port)
            except RingmasterError as error:
                self._start_failure = Failure(
                    node=plan.name, rank=None, exit_code=None, signal=None, reason=str(error), log_tail=(), hint=None
                )
                return False
            followed = Followed(node=node, log=(self._folder.logs / f"{plan.name}.log").open("wb"))
            self._nodes.append(followed)
            self._selector.register(node, selectors.EVENT_READ, followed)
        return True

    def _follow(self) -> None:
        started, waited, looked = time.monotonic(), _WAIT_S, 0.0
        while any(each.open or each.node.poll() is None for each in self._nodes):
            for key, _ in self._selector.select(_TICK_S):
                self._take(key.data)
            now = time.monotonic()
            for each in self._nodes:
                self._notice_end(each)
            self._obey()
            self._due(now)
            if now - looked >= _LOOK_S:
                looked = now
                self._screen.progress(self._follower.look())
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
            each.node.ranks[event.rank] = event.fields["pid"]
            if self._stopping or self._asked:
                each.node.signal_ranks(signal.SIGTERM, only=event.rank)
            return
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
        each.ends[event.rank] = end
        if end.exit_code != 0:
            self._stop_soon()

    def _notice_end(self, each: Followed) -> None:
        code = each.node.poll()
        if code is None or each.agent_end is not None:
            return
        if each.open and code == 0:
            return  # its last words are still to be read
        each.agent_end = RankEnd(
            node=each.node.plan.name,
            rank=None,
            exit_code=code if code >= 0 else 128 - code,
            signal=signal.Signals(-code).name if code < 0 else None,
            ended_at=time.time(),
            stopped_by_us=self._stopping,
            lines=tuple(each.own_lines),
        )
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
            self._screen.note("stopping: nothing had started yet")
            self._terminate()
            return
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

    def _outcome(self) -> Outcome:
        if self._asked:
            code = ExitCode.INTERRUPTED if self._asked[0] == signal.SIGINT else ExitCode.TERMINATED
            return Outcome(state="stopped", exit_code=code)
        if self._start_failure:
            return Outcome(state="failed", exit_code=ExitCode.NOT_STARTED, failure=self._start_failure)
        failure = root_cause([end for each in self._nodes for end in ends(each)])
        if failure is None:
            return Outcome(state="succeeded", exit_code=ExitCode.SUCCEEDED)
        return Outcome(state="failed", exit_code=self._failed_code(failure), failure=failure)

    def _failed_code(self, failure: Failure) -> ExitCode:
        if failure.rank is None:
            return ExitCode.CLUSTER  # a node's agent died, or the nodes never met
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
            self._asked_at = time.monotonic()
            if not echo:
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
