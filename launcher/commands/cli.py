"""Runs a verb for a Fabric task: shows errors as one line, and leaves with the exit code that the last line names."""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from typing import NoReturn, cast

from launcher.base.errors import ExitCode, RingmasterError, StoppedError
from launcher.base.terminal import mute


def leave_with(verb: Callable[[], int], *, debug: bool = False) -> NoReturn:
    """Run `verb`, print the closing line, end the process with its exit code. With `debug`, tracebacks are shown.

    make turns every failure into 2, so the closing line is where its users find the real code.
    """
    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - open until the end
    # Names and arguments that are no UTF-8 are shown byte for byte, as they are used.
    cast(TextIOWrapper, sys.stdout).reconfigure(errors="surrogateescape")
    # An interrupt before the supervisor takes over: nothing runs yet.
    for signum in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) != signal.SIG_IGN:  # `nohup`
            signal.signal(signum, _terminated)
    try:
        code = int(verb())
    except RingmasterError as error:
        code = error.exit_code
        _say(error, str(error), debug)
    except KeyboardInterrupt as error:
        code = ExitCode.INTERRUPTED
        _say(error, "stopped before anything was started", debug)
    except BrokenPipeError:  # whoever read our output has read enough (`| head`)
        code = ExitCode.SUCCEEDED
        mute()
    except Exception as error:
        code = ExitCode.FAILED
        _say(error, f"a mistake in Ringmaster: {type(error).__name__}: {error} (fab's --debug shows where)", debug)
    try:
        print(f"ringmaster: exit {code} ({ExitCode(code).meaning})", flush=True)
    except (OSError, ValueError):
        mute()
    sys.exit(code)


def _terminated(_signum: int, _frame: object) -> NoReturn:
    raise StoppedError


def _say(error: BaseException, message: str, debug: bool) -> None:
    if debug:
        traceback.print_exception(error)
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    print(f"ringmaster: {message}", file=sys.stderr, flush=True)
