"""Run several short programs at once and wait for all of them, so that one slow node doesn't hide the others."""

import os
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

_TICK_S = 0.2
"""How often somebody looks whether the ends are still waited for."""
_REST_S = 1.0
"""How long the last words of a program that was killed are waited for."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a program ended."""

    code: int | None
    """The exit code; None: the program was killed at the time limit."""
    out: str
    err: str


def run_all(commands: Sequence[Sequence[str]], *, limit_s: float, over: threading.Event | None = None) -> list[Done]:
    """Run all `commands` at once, for `limit_s` seconds at most; return their ends in the commands' order.

    The programs have no input and no terminal: one that wants to ask the user something fails instead.

    Args:
        over: set by another thread when nobody waits for the ends any longer: all that run are killed.
    """
    running: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            running.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={**os.environ, "LC_ALL": "C"},
                    start_new_session=True,
                )
            )
        ends = time.monotonic() + limit_s
        return [_wait(process, ends, over or threading.Event()) for process in running]
    finally:
        for process in running:
            if process.poll() is None:
                _kill(process)


def _wait(process: "subprocess.Popen[bytes]", ends: float, over: threading.Event) -> Done:
    try:
        out, err = _until_over(process, ends, over)
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        code = process.poll()  # it may have ended while we waited for a slower one
        if code is None:
            _kill(process)
        out, err = _rest(process)
    return Done(code=code, out=out.decode(errors="replace"), err=err.decode(errors="replace"))


def _until_over(process: "subprocess.Popen[bytes]", ends: float, over: threading.Event) -> tuple[bytes, bytes]:
    """Return what a program has printed.

    Raises:
        subprocess.TimeoutExpired: it has not ended.
    """
    while True:
        left_s = 0.0 if over.is_set() else max(0.0, ends - time.monotonic())
        try:
            return process.communicate(timeout=min(_TICK_S, left_s))
        except subprocess.TimeoutExpired:
            if left_s == 0.0:
                raise


def _rest(process: "subprocess.Popen[bytes]") -> tuple[bytes, bytes]:
    """Return what a program has printed by its end, or by now: a helper that outlived it keeps the pipes open."""
    out, err = b"", b""
    for _ in range(2):
        try:
            return process.communicate(timeout=_REST_S)
        except subprocess.TimeoutExpired as unfinished:
            out, err = unfinished.output or b"", unfinished.stderr or b""
            _kill(process)
    return out, err  # a helper in a session of its own, or one that hangs in the kernel: neither is waited for


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill the program and its helpers (a jump host's ssh), which would keep the pipes open."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, 9)
