"""What a signal to the launcher means for the job. What is done about it is in `signal_ladder`.

`meaning` decides, and is pure; `SignalInbox` receives the signals and keeps what they amount to.
"""

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto

_ECHO_S = 1.0
"""The same SIGTERM or SIGHUP again within this time is an echo of the first."""
_HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Meaning(Enum):
    """What a signal asks for."""

    STOP = auto()
    """Stop the job: one more rung of the ladder."""
    DETACH = auto()
    """Stop following; the job goes on."""
    NOTHING = auto()


@dataclass(frozen=True, kw_only=True)
class Role:
    """Why the job is followed, as far as that decides what a signal means."""

    only_follows: bool
    """Ctrl-C ends the following, not the job."""
    stops: bool
    """The launcher is here to stop the job: a closed terminal is no reason not to."""
    survives: bool
    """The job can go on without the launcher."""


def hung_up(signum: int, role: Role) -> bool:
    """Return whether the terminal of a job that needs none was closed."""
    return signum == signal.SIGHUP and role.survives


def meaning(signum: int, role: Role, *, since_last_s: float | None) -> Meaning:
    """Return what a signal asks for.

    Args:
        since_last_s: seconds since the signal before it; None: it is the first.
    """
    if role.only_follows or (hung_up(signum, role) and not role.stops):
        return Meaning.DETACH
    # `kill` to a process group reaches us twice: make hands SIGTERM on to what it started.
    echo = signum != signal.SIGINT and since_last_s is not None and since_last_s < _ECHO_S
    return Meaning.NOTHING if echo or hung_up(signum, role) else Meaning.STOP


class SignalInbox:
    """The signals received while a job is followed."""

    def __init__(self, role: Role, received: Sequence[int] = ()) -> None:
        """Start with signals that count as received already."""
        self.stop_requests: list[int] = list(received)
        """The signals that asked for the job's end, in order."""
        self.detached_by: int | None = None
        """The signal after which the job is left to itself."""
        self._role = role
        self._last_at: float | None = None

    @property
    def any_came(self) -> bool:
        """Whether a signal came while we followed; a closed terminal that the job survives doesn't count."""
        return self._last_at is not None

    @property
    def decides(self) -> bool:
        """Whether a signal decides how the following ends."""
        return bool(self.stop_requests) or self.detached_by is not None

    def clear(self) -> None:
        """Forget the signals: the job had ended before they came."""
        self.stop_requests, self.detached_by = [], None

    @contextmanager
    def receiving(self) -> Iterator[None]:
        """Note SIGINT, SIGTERM and SIGHUP (the terminal closed) instead of dying of them."""
        # What was ignored when we were started (`nohup`: SIGHUP) stays ignored.
        heard = [each for each in _HEARD if signal.getsignal(each) != signal.SIG_IGN]
        before = {each: signal.signal(each, self._receive) for each in heard}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _receive(self, signum: int, _frame: object) -> None:
        now = time.monotonic()
        meant = meaning(signum, self._role, since_last_s=None if self._last_at is None else now - self._last_at)
        if not hung_up(signum, self._role):
            self._last_at = now
        if meant is Meaning.DETACH:
            self.detached_by = signum
        elif meant is Meaning.STOP:
            self.stop_requests.append(signum)
