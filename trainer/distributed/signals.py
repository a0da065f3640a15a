"""SIGTERM and SIGINT as a request that the training loop fulfils between two steps."""

import os
import signal
import time
from types import FrameType

PATIENCE = 1.0
"""Seconds in which further signals count as the first one: a terminal and torchrun both deliver the same Ctrl-C."""


class StopSignal:
    """Remembers the first signal; a later one, after `PATIENCE`, ends the process at once."""

    def __init__(self) -> None:
        self.number = 0
        """The signal received, 0 for none."""
        self._since = 0.0

    def install(self) -> None:
        """Take over SIGTERM and SIGINT for the rest of the process."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        del frame
        if not self.number:
            self.number, self._since = number, time.monotonic()
        elif time.monotonic() - self._since > PATIENCE:
            os._exit(128 + number)
