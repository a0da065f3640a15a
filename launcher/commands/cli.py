"""Run a verb for a Fabric task: show an error as one line, and exit with the code that the last line names."""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from typing import NoReturn, cast

from launcher.base.errors import ExitCode, RingmasterError, StoppedError, meaning
from launcher.base.terminal import mute, visible


def leave_with(verb: Callable[[], int], *, debug: bool = False) -> NoReturn:
    """Run `verb`, print the closing line, and exit with its code; with `debug`, show tracebacks.

    make turns every failure into 2, so its users find the real code in the closing line.
    """
    if sys.stdout is None:  # closed by the program that started us
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - open until the end
    # Names and arguments that are not UTF-8 are shown as they are used: byte for byte.
    cast(TextIOWrapper, sys.stdout).reconfigure(errors="surrogateescape")
    # A signal that comes before the follower handles signals: nothing runs yet.
    for signum in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) != signal.SIG_IGN:  # `nohup`
            signal.signal(signum, _terminated)
    try:
        code = verb()
    except RingmasterError as error:
        code = error.exit_code
        _report(error, str(error), debug)
    except (KeyboardInterrupt, StoppedError) as error:
        code = error.exit_code if isinstance(error, StoppedError) else ExitCode.INTERRUPTED
        _report(error, "stopped before anything was started", debug)
    except BrokenPipeError:  # the reader of our output has read enough (`| head`)
        code = ExitCode.SUCCEEDED
        mute()
    except Exception as error:
        code = ExitCode.FAILED
        _report(error, f"a mistake in Ringmaster: {type(error).__name__}: {error} (fab's --debug shows where)", debug)
    try:
        print(f"ringmaster: exit {code} ({meaning(code)})", flush=True)
    except (OSError, ValueError):
        mute()
    sys.exit(int(code))


def _terminated(signum: int, _frame: object) -> NoReturn:
    raise StoppedError(signum)


def _report(error: BaseException, message: str, debug: bool) -> None:
    if debug:
        traceback.print_exception(error)
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    print(f"ringmaster: {visible(message)}", file=sys.stderr, flush=True)
