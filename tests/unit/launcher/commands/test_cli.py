"""How a verb ends: one line for an error, the closing line with the real code, never a traceback unless asked."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from launcher.base.errors import ExitCode, RingmasterError, StoppedError
from launcher.base.paths import ROOT
from launcher.commands.cli import leave_with


@pytest.fixture(autouse=True)
def own_signals() -> object:
    """Restore the signal handlers that leave_with replaces."""
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def left(verb: Callable[[], int], capsys: pytest.CaptureFixture[str], *, debug: bool = False) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as raised:
        leave_with(verb, debug=debug)
    out, err = capsys.readouterr()
    assert isinstance(raised.value.code, int)
    return raised.value.code, out.splitlines()[-1], err


def fails(error: BaseException) -> Callable[[], int]:
    def verb() -> int:
        raise error

    return verb


def test_done(capsys: pytest.CaptureFixture[str]) -> None:
    assert left(lambda: 0, capsys) == (0, "ringmaster: exit 0 (succeeded)", "")


@pytest.mark.parametrize(
    ("error", "code", "stderr"),
    [
        (RingmasterError("node1: no"), 2, "ringmaster: node1: no\n"),
        (RingmasterError("no", exit_code=ExitCode.CLUSTER), 4, "ringmaster: no\n"),
        (
            RingmasterError("node1: \x1b]0;it says\x07 \x9b2Jno"),
            2,
            "ringmaster: node1: \\x1b]0;it says\\x07 \\x9b2Jno\n",
        ),
        (StoppedError(), 143, "ringmaster: stopped before anything was started\n"),
        (KeyboardInterrupt(), 130, "ringmaster: stopped before anything was started\n"),
        (ZeroDivisionError("oh"), 1, "ringmaster: a mistake in Ringmaster: ZeroDivisionError: oh"),
    ],
)
def test_errors_are_one_line(capsys: pytest.CaptureFixture[str], error: Exception, code: int, stderr: str) -> None:
    ended, last, err = left(fails(error), capsys)
    assert (ended, last.startswith(f"ringmaster: exit {code} (")) == (code, True)
    assert err.startswith(stderr) and err.count("\n") == 1


def test_debug_shows_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Traceback" in left(fails(ZeroDivisionError()), capsys, debug=True)[2]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_lets_the_verb_clean_up_first(capsys: pytest.CaptureFixture[str], signum: signal.Signals) -> None:
    cleared: list[bool] = []

    def verb() -> int:
        try:
            signal.raise_signal(signum)
        finally:
            cleared.append(True)
        return 0

    signal.signal(signum, signal.SIG_DFL)
    assert left(verb, capsys) == (
        143,
        f"ringmaster: exit 143 (stopped by {signal.Signals(signum).name})",
        "ringmaster: stopped before anything was started\n",
    )
    assert cleared == [True]


def test_a_closed_terminal_is_ignored_under_nohup(capsys: pytest.CaptureFixture[str]) -> None:
    def verb() -> int:
        signal.raise_signal(signal.SIGHUP)
        return 0

    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    assert left(verb, capsys) == (0, "ringmaster: exit 0 (succeeded)", "")


def test_output_into_a_closed_pipe_is_no_error() -> None:
    verb = "lambda: [print('x' * 100) for _ in range(10000)] and 0"
    code = f"from launcher.commands.cli import leave_with; leave_with({verb})"
    command = ["bash", "-c", '"$0" -c "$1" | head -1; exit ${PIPESTATUS[0]}', sys.executable, code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("target", ["/dev/full", None])
def test_output_that_can_not_be_written_changes_no_exit_code(target: str | None) -> None:
    code = "from launcher.commands.cli import leave_with; leave_with(lambda: 2)"
    stream = open(target, "w") if target else None  # noqa: SIM115, PTH123
    command = [sys.executable, "-c", code] if target else ["sh", "-c", 'exec "$0" -c "$1" >&-', sys.executable, code]
    done = subprocess.run(command, cwd=ROOT, stdout=stream, stderr=subprocess.PIPE, env=os.environ, timeout=30)
    assert (done.returncode, done.stderr) == (2, b"")
