"""Prints in a thread of its own: whoever reads our output may be slow or asleep, and must hold up nothing else."""

import os
import select
import sys
import threading
import time
from collections.abc import Callable, Sequence

from launcher.base.terminal import mute
from launcher.follow.show.backlog import Backlog

_CHUNK_BYTES = 4096
"""Written at once; each one shows that the reader reads."""
_REDRAWN_S = 0.05
"""The live line is drawn at most this often."""
_LOOK_S = 0.1
_ERASE = b"\r\x1b[2K"


class Printer:
    """Prints a backlog to standard output, above a live line if there is one."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._live = b""
        """What the live line is to show; empty: there is none."""
        self._shown = b""
        """What it shows."""
        self._drawn_at = 0.0
        self._printing = False
        self._chunks = 0
        self._unread = False
        """Nobody listens (`| head`, a full disk, a closed terminal), which is no reason to stop training."""
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="printer", daemon=True)
        self._thread.start()

    def lines(self, node: str, rank: int, lines: Sequence[bytes]) -> None:
        """Print lines of a rank when it is their turn."""
        with self._changed:
            if not self._unread:
                self._backlog.put_lines(node, rank, lines)
                self._changed.notify_all()

    def text(self, text: bytes, *, urgent: bool = False) -> None:
        """Print what the launcher says itself; `urgent`: on a terminal, lines that keep it waiting are skipped."""
        with self._changed:
            if not self._unread:
                self._backlog.put_text(text, urgent_at=time.monotonic() if urgent else None)
                self._changed.notify_all()

    def live(self, text: bytes) -> None:
        """Show `text` as the live line, below all that is printed; empty: no such line."""
        with self._changed:
            if not self._unread:
                self._live = text
                self._changed.notify_all()

    def wait(self, patience_s: float | None, interrupted: Callable[[], bool] = lambda: False) -> bool:
        """Wait until all is printed; return False if the reader reads nothing for so long, or on an interrupt.

        Args:
            patience_s: None: there is no limit.
        """
        with self._changed:
            chunks, since = self._chunks, time.monotonic()
            while self._behind():
                self._changed.wait(_LOOK_S)
                if interrupted():
                    return False
                if self._chunks != chunks:
                    chunks, since = self._chunks, time.monotonic()
                elif patience_s is not None and time.monotonic() - since > patience_s:
                    return False
        return True

    def close(self) -> None:
        """Print nothing more. What still waits is lost, and so is what anybody prints later: nobody reads."""
        with self._changed:
            stuck = self._behind()
            self._closed = True
            self._backlog.clear()
            self._changed.notify_all()
        if stuck:
            mute()
        else:
            self._thread.join()

    def _behind(self) -> bool:
        return self._printing or self._backlog.waits or self._live != self._shown

    def _run(self) -> None:
        write = _writer()
        while True:
            with self._changed:
                while not (data := self._next(time.monotonic())):
                    self._printing = False
                    self._changed.notify_all()
                    if self._closed:
                        return
                    pending = self._live != self._shown
                    self._changed.wait(max(0.0, self._drawn_at + _REDRAWN_S - time.monotonic()) if pending else None)
                self._printing = True
            try:
                for start in range(0, len(data), _CHUNK_BYTES):
                    write(data[start : start + _CHUNK_BYTES])
                    self._chunks += 1
                    if self._closed:
                        return
            except (OSError, ValueError, AttributeError):  # broken, closed, or none at all
                self._stop_printing()

    def _next(self, now: float) -> bytes:
        """Return what is to be written next; empty: nothing for the moment."""
        if self._unread:
            return b""
        text = self._backlog.take(now)
        due = now - self._drawn_at >= _REDRAWN_S
        if not text and (self._live == self._shown or (self._live and not due)):
            return b""
        data = (_ERASE if self._shown else b"") + text
        self._shown = b""
        if self._live and due:
            data, self._shown, self._drawn_at = data + self._live, self._live, now
        return data

    def _stop_printing(self) -> None:
        with self._changed:
            self._unread = True
            self._live = self._shown = b""
            self._backlog.clear()
        mute()


def _writer() -> Callable[[bytes], object]:
    """Return what writes to standard output, past its buffer: a thread that sleeps must not hold that one's lock."""
    try:
        sys.stdout.flush()
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError, AttributeError):  # closed, or a stream that is no file
        return lambda data: sys.stdout.buffer.write(data)

    def write(data: bytes) -> None:
        while data:
            try:
                data = data[os.write(descriptor, data) :]
            except BlockingIOError:  # a program that shares it has made it so
                select.select([], [descriptor], [], 1.0)

    return write
