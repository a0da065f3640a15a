"""Runs one rank's program under torchrun: labels what it prints, reports how it ends, leaves nothing behind.

torchrun starts this file once per rank (`--no-python`), also inside a container, so it stands alone: the
standard library, no sibling imports. Why a parent process instead of code inside the program: the program stays
exactly what `python script.py` would run, and a crash of the interpreter (SIGSEGV, SIGKILL) is still reported.

The program comes in the environment, as shell words, because torchrun rewrites `$$` and `${local_rank}` in arguments:

- RINGMASTER_PROGRAM: interpreter, its options and the script
- RINGMASTER_ARGUMENTS: the script's arguments
- RINGMASTER_LOCAL_RANK_FLAG: `--local-rank` or `--local_rank` for launch-style scripts, else empty

What it prints is a stream of frames, one a line, each short enough (PIPE_BUF) to reach a pipe unmixed:

- RS rank `|` text: a whole line of the program
- RS rank `+` text: a piece of a line that goes on in the rank's next frame
- RS rank `!` JSON: an event, {"event": "started", "pid"} or {"event": "exited", "exit_code", "signal", "error_at"}
"""

import ctypes
import json
import os
import resource
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

FRAME = b"\x1e"
LINE, PIECE, EVENT = b"|", b"+", b"!"
PROGRAM, ARGUMENTS, LOCAL_RANK_FLAG = "RINGMASTER_PROGRAM", "RINGMASTER_ARGUMENTS", "RINGMASTER_LOCAL_RANK_FLAG"

_PIECE_BYTES = 4000  # PIPE_BUF is 4096 on Linux; room for the frame's head
_LONGEST_LINE_BYTES = 1 << 20  # whoever prints more without a newline gets one, rather than all our memory
_PROGRESS_SECONDS = 1.0  # a progress bar redraws its line many times a second; keep one a second
_ERROR_STARTS = (b"Traceback (most recent call last)", b"Fatal Python error", b"terminate called")
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(signum: int = signal.SIGKILL) -> None:
    """Ask Linux to send this process `signum` when its parent dies; elsewhere do nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0)


class LineSplitter:
    """Cuts a byte stream into lines; `\\r` redraws are thinned to one a second, the last always kept."""

    def __init__(self) -> None:
        self._partial = b""
        self._redraw = b""
        self._redrawn_at = 0.0

    def feed(self, data: bytes, now: float) -> Iterator[bytes]:
        """Yield the whole lines that `data` (received at `now`, seconds) completes."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._redraw = b""
            yield line.rstrip(b"\r").rpartition(b"\r")[2]
        if len(self._partial) > _LONGEST_LINE_BYTES:
            yield self._partial
            self._partial = b""
        # Bars are drawn as "\rtext" or as "text\r"; a last \r stays, for it may be half of a Windows line end.
        ended = self._partial.endswith(b"\r")
        before, redraw, rest = self._partial[: -1 if ended else None].rpartition(b"\r")
        if ended:
            self._redraw = rest
            self._partial = rest + b"\r"
        elif redraw:
            self._partial, self._redraw = rest, before.rpartition(b"\r")[2]
        if self._redraw and now - self._redrawn_at >= _PROGRESS_SECONDS:
            self._redrawn_at = now
            yield self._redraw
            self._redraw = b""

    def finish(self) -> Iterator[bytes]:
        """Yield what is left when the stream ends without a final newline."""
        rest = self._partial.rstrip(b"\r").rpartition(b"\r")[2] or self._redraw
        if rest:
            yield rest


class Frames:
    """Writes frames of one rank to standard output."""

    def __init__(self, rank: str) -> None:
        self._head = FRAME + rank.encode()

    def line(self, line: bytes) -> None:
        while len(line) > _PIECE_BYTES:
            self._write(PIECE, line[:_PIECE_BYTES])
            line = line[_PIECE_BYTES:]
        self._write(LINE, line)

    def event(self, name: str, **fields: Any) -> None:
        self._write(EVENT, json.dumps({"event": name, **fields}).encode())

    def _write(self, kind: bytes, text: bytes) -> None:
        # Who reads may be gone (a launcher that was killed): the program ends by other means then, not by EPIPE here.
        with suppress(BrokenPipeError):
            os.write(1, self._head + kind + text + b"\n")


def command(environment: dict[str, str]) -> list[str]:
    """Take the program's words out of `environment` and return its command line."""
    words = shlex.split(environment.pop(PROGRAM))
    flag = environment.pop(LOCAL_RANK_FLAG, "")
    if flag:
        words.append(f"{flag}={environment['LOCAL_RANK']}")
    return words + shlex.split(environment.pop(ARGUMENTS, ""))


def _prepare_child() -> None:
    die_with_parent()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)


def _end_like(returncode: int) -> None:
    """Leave the way the program did, so that torchrun sees its exit code or signal."""
    if returncode >= 0:
        os._exit(returncode)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # one core file, the program's own, is enough
    if -returncode != signal.SIGKILL:
        signal.signal(-returncode, signal.SIG_DFL)
    os.kill(os.getpid(), -returncode)
    os._exit(128 - returncode)


def _signal_name(signum: int) -> str:
    try:
        return signal.Signals(signum).name
    except ValueError:  # a real-time signal has no name of its own
        return f"signal {signum}"


def _relay(child: "subprocess.Popen[bytes]", frames: Frames) -> float | None:
    """Pass on the child's lines until it ends; return when (unix time) its last error began."""
    splitter, error_at = LineSplitter(), None
    assert child.stdout is not None
    descriptor = child.stdout.fileno()
    selector = selectors.DefaultSelector()
    selector.register(descriptor, selectors.EVENT_READ)
    ended_at: float | None = None
    while True:
        if ended_at is None and child.poll() is not None:
            ended_at = time.monotonic()
        # A grandchild may hold the pipe open for ever: half a second after the program's end is enough.
        if ended_at is not None and time.monotonic() - ended_at > 0.5:
            break
        if not selector.select(timeout=0.1):
            if ended_at is not None:
                break
            continue
        data = os.read(descriptor, 65536)
        if not data:
            break
        if any(start in data for start in _ERROR_STARTS):  # the last counts: the earlier ones it survived
            error_at = time.time()
        for line in splitter.feed(data, time.monotonic()):
            frames.line(line)
    for line in splitter.finish():
        frames.line(line)
    return error_at


def main() -> None:
    """Run the program of the environment and end as it ends."""
    environment = dict(os.environ)
    frames = Frames(environment["RANK"])
    words = command(environment)
    # Signals stay blocked until there is a child to hand them to.
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    die_with_parent()
    try:
        child = subprocess.Popen(
            words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=_prepare_child
        )
    except OSError as error:
        frames.line(f"cannot start {words[0]}: {error.strerror}".encode())
        frames.event("exited", exit_code=127, signal=None, error_at=time.time())
        os._exit(127)

    def forward(signum: int, _frame: object) -> None:
        if child.poll() is None:
            child.send_signal(signum)

    for signum in _FORWARDED:
        signal.signal(signum, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    frames.event("started", pid=os.getpid())
    error_at = _relay(child, frames)
    returncode = child.wait()
    frames.event(
        "exited",
        exit_code=returncode if returncode >= 0 else 128 - returncode,
        signal=_signal_name(-returncode) if returncode < 0 else None,
        error_at=error_at,
    )
    _end_like(returncode)


if __name__ == "__main__":
    main()
