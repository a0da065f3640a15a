"""Hands a password to another process: through a named pipe, which gives it once.

So it is on no command line, in no environment and in no file, where others might see it.
"""

import os
import threading
from contextlib import suppress
from pathlib import Path

_REST_S = 1.0
"""How long its reader may still read once it has removed it."""


class PasswordPipe:
    """A named pipe at which a password waits for its reader, who may remove it."""

    def __init__(self, path: Path, password: bytes) -> None:
        """Args:
        path: where the pipe is made; nobody else may have access to its folder.
        """
        os.mkfifo(path, 0o600)
        self.path = path
        self._password = password
        self._writer = threading.Thread(target=self._give, daemon=True)
        self._writer.start()

    @property
    def was_read(self) -> bool:
        """Whether it has given the password."""
        return not self._writer.is_alive()

    def take_back(self) -> None:
        """Remove the pipe; a password that nobody has read is no longer there."""
        try:
            reading = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:  # its reader has removed it; or somebody else, and then nobody can ever open it
            self._writer.join(_REST_S)
            return
        try:
            while self._writer.is_alive():
                with suppress(BlockingIOError):
                    os.read(reading, 1 << 16)
                self._writer.join(0.01)
        finally:
            os.close(reading)
        self.path.unlink()

    def _give(self) -> None:
        """Wait for the pipe's reader, and write."""
        with suppress(OSError), self.path.open("wb") as file:
            file.write(self._password + b"\n")
