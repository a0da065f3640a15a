"""Whether a launcher follows a job from here: it holds a file in the job's folder for as long as it lives.

The hold is the kernel's (flock), so it ends with the launcher however that ends, and a process's number that was given
away again is no hold.
"""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from launcher.job.folder import JobFolder


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A launcher that lives."""

    host: str
    """The machine that it runs on: several may share the disk."""
    pid: int

    @property
    def is_here(self) -> bool:
        """Whether it runs on this machine."""
        return self.host == socket.gethostname() and self.pid > 0


@contextmanager
def held(folder: JobFolder) -> Iterator[None]:
    """Hold a job's folder. Several may do so; the last one that came is named. A disk without locks is no error."""
    with ExitStack() as stack:
        with suppress(OSError):
            file = stack.enter_context(folder.launcher.open("w", encoding="utf-8"))
            fcntl.flock(file, fcntl.LOCK_SH)
            file.write(f"{os.getpid()} {socket.gethostname()}\n")
            file.flush()
        yield


def holder(folder: JobFolder) -> Holder | None:
    """Return the launcher that follows a job; None if none does, or nobody can know."""
    with suppress(OSError, ValueError), folder.launcher.open(encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid, _, host = file.read().strip().partition(" ")
            return Holder(host=host, pid=int(pid) if pid.isdecimal() else 0)
    return None
