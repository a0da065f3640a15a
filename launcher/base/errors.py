"""Exit codes, and the one exception that carries an error to the user."""

import signal
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of Ringmaster's commands; docs/design.md has the meaning of each."""

    SUCCEEDED = 0
    FAILED = 1
    USAGE = 2
    NOT_STARTED = 3
    CLUSTER = 4
    PARTLY = 5
    INTERRUPTED = 130
    TERMINATED = 143

    @property
    def meaning(self) -> str:
        """Return a few words for the last line that a command prints."""
        return {
            ExitCode.SUCCEEDED: "succeeded",
            ExitCode.FAILED: "failed",
            ExitCode.USAGE: "wrong usage or inventory",
            ExitCode.NOT_STARTED: "a check failed, nothing was started",
            ExitCode.CLUSTER: "the cluster failed",
            ExitCode.PARTLY: "some nodes could not be provisioned",
            ExitCode.INTERRUPTED: "stopped by Ctrl-C",
            ExitCode.TERMINATED: "stopped by SIGTERM",
        }[self]


BY_SIGNAL = (ExitCode.INTERRUPTED, ExitCode.TERMINATED)
"""The user, or whoever sent the signal, wanted it to end."""


class SignalExit(int):
    """One of these codes, together with the signal that it stands for: 143 is not always SIGTERM's."""

    def __new__(cls, signum: int) -> "SignalExit":
        """Return 130 for SIGINT, 143 for every other signal."""
        code = super().__new__(cls, ExitCode.INTERRUPTED if signum == signal.SIGINT else ExitCode.TERMINATED)
        code._signum = signum
        return code

    _signum: int

    @property
    def meaning(self) -> str:
        """Return a few words for the last line that a command prints."""
        if self._signum == signal.SIGINT:
            return ExitCode.INTERRUPTED.meaning
        return f"stopped by {signal.Signals(self._signum).name}"


def meaning(code: int) -> str:
    """Return a few words for an exit code."""
    return code.meaning if isinstance(code, SignalExit) else ExitCode(code).meaning


class RingmasterError(Exception):
    """A mistake or fault that is shown as one line: what, where, how to fix it."""

    def __init__(self, message: str, *, exit_code: ExitCode | SignalExit = ExitCode.USAGE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class StoppedError(BaseException):
    """A SIGTERM or SIGHUP (the terminal was closed) that came while no code of ours handled it.

    As with Ctrl-C, whoever answers the errors of a connection or a disk must not take it for one of those.
    """

    def __init__(self, signum: int = signal.SIGTERM) -> None:
        super().__init__()
        self.exit_code = SignalExit(signum)
