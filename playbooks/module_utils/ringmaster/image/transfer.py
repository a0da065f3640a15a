"""Pulls and pushes that survive a broken network: they are tried again after a while, through a new tunnel."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from ansible.module_utils.ringmaster.image.engine import transfer

_PAUSES = (2, 5, 15)
"""Seconds before each further try; the engine itself tries each layer again five times."""
_POLL_SECONDS = 0.2
_HOPELESS = (
    "manifest unknown", "not found", "unauthorized", "denied", "no space left", "invalid reference", "x509",
    "prohibited",
)  # fmt: skip


def run(verb: str, name: str, *, home: str, seconds: float, keep: Callable[[], None] = lambda: None) -> None:
    """Pull or push an image; `keep` is called again and again meanwhile, and opens the way to the registry if need be.

    Raises:
        ValueError: it failed each time, or for a reason that another try can't change.
    """
    deadline = time.monotonic() + seconds
    for pause in (*_PAUSES, None):
        problem = _once(verb, name, home, deadline, keep)
        if not problem:
            return
        if pause is None or time.monotonic() > deadline or any(one in problem.lower() for one in _HOPELESS):
            raise ValueError(problem)
        time.sleep(pause)


def _once(verb: str, name: str, home: str, deadline: float, keep: Callable[[], None]) -> str:
    """Return what went wrong, or nothing."""
    try:
        keep()
    except OSError as error:
        return str(error)
    process = transfer(verb, name, home, max(1, deadline - time.monotonic()))
    try:
        while True:
            try:
                output, _ = process.communicate(timeout=_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                _try(keep)
                continue
            lines = output.strip().splitlines() or [f"docker {verb} ended with {process.returncode}"]
            return lines[-1].replace("Error response from daemon: ", "") if process.returncode else ""
    finally:
        process.terminate()


def _try(keep: Callable[[], None]) -> None:
    """Open the way again; while that fails, the engine waits."""
    try:
        keep()
    except OSError:
        return
