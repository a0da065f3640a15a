"""Entry point: `torchrun -m trainer`."""

import atexit
import contextlib
import ctypes
import io
import os
import sys

from trainer import metrics  # noqa: F401  (first of all: its clock starts here, before the seconds that torch takes)
from trainer.config import parse
from trainer.errors import UserError


def main() -> int:
    """Runs the trainer; returns its exit code. Unexpected errors raise: their traceback names the cause."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name must not end training, whatever the locale
    try:
        if sys.argv[1:2] == ["bench-input"]:
            from trainer import bench_input  # imports torch

            return bench_input.main(sys.argv[2:])
        config = parse(sys.argv[1:], os.environ)
        from trainer.run import run  # after the arguments are known to be good: torch is slow to import

        return run(config)
    except UserError as error:
        if "--debug" in sys.argv:
            raise
        print(f"trainer: error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


class _Ending:
    """Ends the process once all exit functions have run, before Python takes itself apart.

    While it does that, a thread of Gloo's that lets go of its last tensor finds Python's lock gone and aborts the
    process: SIGABRT takes the place of the exit code (docs/decisions/0029).
    """

    code: int = 1
    """What an unexpected error leaves."""

    def __call__(self) -> None:
        try:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):  # closed, or nobody reads it, or a full disk
                    stream.flush()
            ctypes.CDLL(None).fflush(None)  # what libraries have printed
        finally:
            os._exit(self.code)


if __name__ == "__main__":
    ending = _Ending()
    atexit.register(ending)  # before torch and multiprocessing are imported, so that theirs run before it
    try:
        ending.code = main()
    except SystemExit as end:
        ending.code = end.code if isinstance(end.code, int) else int(end.code is not None)
        raise
    sys.exit(ending.code)
