"""One delivery at a time on a node."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

_PATH = "/run/ringmaster-image.lock"


@contextlib.contextmanager
def alone(seconds: float) -> Iterator[None]:
    """Wait for other deliveries to this node to end, then keep them out.

    Raises:
        OSError: another one still goes on after that many seconds.
    """
    descriptor = os.open(_PATH, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + seconds
        while not _taken(descriptor):
            if time.monotonic() > deadline:
                raise OSError("another delivery of an image to this node does not end: wait for it, then run again")
            time.sleep(1)
        yield
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
