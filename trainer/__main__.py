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
"""Seconds that a rank which ends in silence leaves to the one that says why: torchrun ends all ranks of a node as soon
as one has ended."""


def main() -> int:
    """Runs the trainer; returns its exit code. Unexpected errors raise: their traceback names the cause."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file's name must not end training, whatever the locale
    try:
        if sys.argv[1:2] == ["bench-input"]:
            from trainer.bench import input_pipeline  # imports torch

            return input_pipeline.main(sys.argv[2:])
        config = parse(sys.argv[1:], os.environ)
        try:
            refuse_world(config, os.environ)
            from trainer.run import run  # after all that needs no torch: ranks are seconds apart once they imported it

            return run(config)
        except SystemExit:
            time.sleep(_LAST_WORDS)
            raise
    except UserError as error:
        if "--debug" in sys.argv:
            raise
        print(f"trainer: error: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def refuse_world(config: Config, env: Mapping[str, str]) -> None:
    """Ends the ranks that the strategy can't use: UserError(2) on rank 0, a silent SystemExit on the others."""
    try:
        validate_world(config, nodes=int(env.get("GROUP_WORLD_SIZE", "1")), world_size=int(env.get("WORLD_SIZE", "1")))
    except UserError as error:
        if env.get("RANK", "0") == "0":
            raise
        raise SystemExit(error.exit_code) from None


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
