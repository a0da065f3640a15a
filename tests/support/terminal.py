"""A terminal, or a pipe, that somebody reads, or that nobody reads."""

import fcntl
import os
import pty
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

_STILL_S = 1.0


@dataclass(kw_only=True)
class Output:
    """Where programs write to (`inside`), and what came out of it so far."""

    inside: int
    outside: int
    text: bytearray = field(default_factory=bytearray)

    def read_on(self) -> None:
        """Read as fast as it comes, from now on."""
        threading.Thread(target=self._read, daemon=True).start()

    def await_words(self, words: bytes, seconds: float) -> float:
        """Wait until the words have come, and return how long it took (seconds)."""
        began = time.monotonic()
        start = len(self.text)
        while self.text.find(words, start) < 0:
            assert time.monotonic() - began < seconds, f"no {words!r} within {seconds} s"
            time.sleep(0.005)
        return time.monotonic() - began

    def await_full(self, seconds: float) -> None:
        """Wait until it holds all that it can: something, and no more for a while."""
        deadline, held, since = time.monotonic() + seconds, 0, time.monotonic()
        while not held or time.monotonic() - since < _STILL_S:
            assert time.monotonic() < deadline, f"it isn't full within {seconds} s"
            now = self._held()
            if now != held:
                held, since = now, time.monotonic()
            time.sleep(0.05)

    def _held(self) -> int:
        return int.from_bytes(fcntl.ioctl(self.outside, termios.FIONREAD, bytes(4)), "little")

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self.outside, 1 << 16)
            except OSError:  # a terminal that nobody has open any more
                return
            if not data:
                return
            self.text += data


@contextmanager
def opened(kind: Literal["pipe", "terminal"]) -> Iterator[Output]:
    """Open one that nobody reads yet."""
    outside, inside = pty.openpty() if kind == "terminal" else os.pipe()
    if kind == "terminal":
        termios.tcsetwinsize(outside, (50, 120))
    try:
        yield Output(inside=inside, outside=outside)
    finally:
        for each in (outside, inside):
            try:
                os.close(each)
            except OSError:  # closed already
                continue
