"""One delivery at a time on a node."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

from ansible.module_utils.ringmaster_manifest import STATE_FOLDER


@contextlib.contextmanager
def alone(seconds: float) -> Iterator[None]:
    """Wait for other deliveries to this node to end, then keep them out.

    Raises:
        OSError: another one still goes on after that many seconds.
    """
    # The folder is what is locked: a file for that would be left after a reset.
    os.makedirs(STATE_FOLDER, mode=0o755, exist_ok=True)
    descriptor = os.open(STATE_FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + seconds
        while not _taken(descriptor):
            if time.monotonic() > deadline:
                raise OSError("another delivery of an image to this node does not end: wait for it, then run again")
            time.sleep(1)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(STATE_FOLDER)  # only where nothing was noted in it
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
