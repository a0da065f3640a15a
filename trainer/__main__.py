"""Entry point: `torchrun -m trainer`."""

import atexit
import contextlib
import ctypes
import io
import os
import sys
import time
from collections.abc import Mapping

from trainer.config.run_config import Config, parse, validate_world
from trainer.errors import UserError
from trainer.reporting import metrics  # noqa: F401 - its clock starts here, before the seconds that torch takes

_LAST_WORDS = 3.0
"""Seconds that a silently ending rank leaves to the one that says why: torchrun ends all ranks of a node as soon as one
has ended."""


def main() -> int:
    """Run the trainer and return its exit code. Unexpected errors propagate: their traceback names the cause."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # in no locale may a file's name end training
    try:
        if sys.argv[1:2] == ["bench-input"]:
            from trainer.bench import input_pipeline  # imports torch

            return input_pipeline.main(sys.argv[2:])
        config = parse(sys.argv[1:], os.environ)
        try:
            refuse_world(config, os.environ)
            from trainer.run import run  # imports torch, after which ranks are seconds apart: so after everything else

            return run(config)
        except SystemExit:
            time.sleep(_LAST_WORDS)
            raise
    except UserError as error:
        if "--debug" in sys.argv:
            raise
        with contextlib.suppress(OSError):  # standard error may be a file on a full disk; the code says it too
            print(f"trainer: error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def refuse_world(config: Config, env: Mapping[str, str]) -> None:
    """End the ranks if the strategy can't use them.

    Raises:
        UserError: exit code 2, on rank 0.
        SystemExit: with the same code and silently, on the other ranks.
    """
    try:
        validate_world(config, nodes=int(env.get("GROUP_WORLD_SIZE", "1")), world_size=int(env.get("WORLD_SIZE", "1")))
    except UserError as error:
        if env.get("RANK", "0") == "0":
            raise
        raise SystemExit(error.exit_code) from None


class _Ending:
    """Ends the process once all exit functions have run, before Python's own finalization.

    During finalization, a thread of Gloo's that releases its last tensor finds Python's lock gone and aborts the
    process: SIGABRT replaces the exit code (docs/decisions/0029).
    """

    code: int = 1
    """The exit code after an unexpected error."""

    def __call__(self) -> None:
        try:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):  # it is closed, or nobody reads it, or the disk is full
                    stream.flush()
            ctypes.CDLL(None).fflush(None)  # the libraries' own buffers
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
