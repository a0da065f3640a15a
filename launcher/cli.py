"""Runs a verb for a Fabric task: shows errors as one line, and leaves with the exit code that the last line names."""

import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from launcher.errors import ExitCode, RingmasterError


def leave_with(verb: Callable[[], int], *, debug: bool = False) -> NoReturn:
    """Run `verb`, print the closing line, end the process with its exit code. With `debug`, tracebacks are shown.

    make turns every failure into 2, so the closing line is where its users find the real code.
    """
    # An interrupt before the supervisor takes over: nothing runs yet.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(ExitCode.TERMINATED))
    try:
        code = int(verb())
    except RingmasterError as error:
        code = error.exit_code
        _say(error, str(error), debug)
    except KeyboardInterrupt as error:
        code = ExitCode.INTERRUPTED
        _say(error, "stopped before anything was started", debug)
    except Exception as error:
        code = ExitCode.FAILED
        _say(error, f"a mistake in Ringmaster: {type(error).__name__}: {error} (fab --debug shows where)", debug)
    print(f"ringmaster: exit {code} ({ExitCode(code).meaning})", flush=True)
    sys.exit(code)


def _say(error: BaseException, message: str, debug: bool) -> None:
    if debug:
        traceback.print_exception(error)
    sys.stdout.flush()
    print(f"ringmaster: {message}", file=sys.stderr, flush=True)
