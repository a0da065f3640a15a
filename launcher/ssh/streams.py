"""Runs a program over an SSH channel: feeds its standard input and drains both of its outputs."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import paramiko

from launcher.base.errors import RingmasterError
from launcher.ssh import program

_TICK_S = 1.0
"""How often a channel that waits wakes up, to see how long it has been silent."""
_PIECE = 1 << 15


def run(
    channel: paramiko.Channel,
    words: Sequence[str],
    stdin: bytes | Iterable[bytes],
    *,
    on_out: Callable[[bytes], None],
    on_err: Callable[[bytes], None],
    limit_s: float | None,
) -> int:
    """Run a program, hand on its output as it comes, and return its exit code.

    Args:
        stdin: what the program reads; an iterable is sent piece by piece.
        limit_s: how long nothing may go either way before the program counts as lost; None: for ever.

    Raises:
        RingmasterError: the input could not be read on this machine.
        OSError, EOFError, paramiko.SSHException: the connection broke, or was silent for too long.
    """
    channel.settimeout(_TICK_S)
    program.start(channel, words)
    feeder = _Feeder(channel, stdin)
    errors = threading.Thread(target=_drain_errors, args=(channel, on_err, feeder), daemon=True)
    errors.start()
    while data := _next_piece(channel.recv, feeder, limit_s):
        on_out(data)
    errors.join(limit_s)
    if feeder.error is not None:
        raise feeder.error
    if not channel.status_event.wait(limit_s) or channel.exit_status < 0:
        raise EOFError("it ended without an exit code")
    return int(channel.exit_status)


class _Feeder:
    """Writes what a program reads, in a thread.

    A program that ends before it has read everything is no error here: its exit code says why.
    """

    def __init__(self, channel: paramiko.Channel, stdin: bytes | Iterable[bytes]) -> None:
        self.active_at = time.monotonic()
        """When something last went either way."""
        self.error: RingmasterError | None = None
        """Why the input could not be read on this machine."""
        self._channel = channel
        threading.Thread(target=self._feed, args=(stdin,), daemon=True).start()

    def _feed(self, stdin: bytes | Iterable[bytes]) -> None:
        pieces = iter((stdin,) if isinstance(stdin, bytes) else stdin)
        while True:
            try:
                piece = next(pieces, None)
            except Exception as error:  # our own: a file that can't be read
                self.error = error if isinstance(error, RingmasterError) else RingmasterError(f"can't be sent: {error}")
                self._channel.close()
                return
            try:
                if piece is None:
                    self._channel.shutdown_write()
                    return
                self._send(piece)
            except (OSError, EOFError):
                return

    def _send(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[self._channel.send(left[:_PIECE]) :]
                self.active_at = time.monotonic()
            except TimeoutError:  # the line is full; whoever reads the output judges whether for too long
                continue


def _next_piece(receive: Callable[[int], bytes], feeder: _Feeder, limit_s: float | None) -> bytes:
    """Return what the program prints next; empty at the end.

    Raises:
        TimeoutError: for `limit_s` nothing was received, nor sent by `feeder`.
    """
    while True:
        try:
            data = receive(_PIECE)
            feeder.active_at = time.monotonic()
            return data
        except TimeoutError:
            if limit_s is not None and time.monotonic() - feeder.active_at > limit_s:
                raise


def _drain_errors(channel: paramiko.Channel, on_data: Callable[[bytes], None], feeder: _Feeder) -> None:
    """Hand on what the program writes to its standard error, until it ends or the connection breaks."""
    with suppress(OSError, EOFError):
        while data := _next_piece(channel.recv_stderr, feeder, None):
            on_data(data)
