"""The kernel's inotify instances: every node's systemd takes some, and the usual limit is enough for about ten nodes.

The limit is the whole machine's, so the record of what it was is too: it lies in /run, which a reboot empties just as
it resets the limit, and names the labs, of any checkout, that may need the higher one. The last of them puts it back.
"""

import ctypes
import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lab.base.say import say
from launcher.base import atomic_file
from launcher.base.errors import ExitCode, RingmasterError

LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
FOLDER = Path("/run/ringmaster-lab")
_PROCESSES = Path("/proc")
_SETTING = "fs.inotify.max_user_instances"
_PER_NODE = 12
"""A bare node was seen with 9, one with a running engine with 11."""
_RAISED = 1024


@dataclass(frozen=True, kw_only=True)
class Record:
    """What was changed, and for whom."""

    before: int
    raised: int
    labs: tuple[str, ...]
    """The labels of the labs that were made, or changed, since."""


def wanted(nodes: int, limit: int, in_use: int) -> int | None:
    """Return what the limit has to be raised to before `nodes` more are started; None: it is enough."""
    need = in_use + nodes * _PER_NODE
    return max(_RAISED, need) if nodes and need > limit else None


def provide(label: str, nodes: int, running: int) -> None:
    """See to it that `nodes` more nodes of the lab `label` find enough, beside the `running` nodes of all labs.

    Raises:
        RingmasterError: there are too few, and this user can't raise the limit.
    """
    limit = int(LIMIT.read_text())
    in_use = max(count(), running * _PER_NODE)
    more = wanted(nodes, limit, in_use)
    if more is not None and not os.access(LIMIT, os.W_OK):
        raise RingmasterError(
            f"{nodes} more nodes need about {nodes * _PER_NODE} inotify instances; this machine's kernel allows "
            f"{limit}, and about {in_use} are in use: `sudo sysctl {_SETTING}={more}`, then try again",
            exit_code=ExitCode.NOT_STARTED,
        )
    if more is None and not _record_file().exists():
        return
    with suppress(PermissionError), _alone():  # without permission it is enough as it is; root's record can't change
        record = _read() or Record(before=limit, raised=limit, labs=())
        labs = tuple(sorted({*record.labs, label}))
        _write(replace(record, raised=more or record.raised, labs=labs))  # first: an interrupted raise is put back too
        if more is not None:
            LIMIT.write_text(f"{more}\n")
            say(f"{_SETTING} raised from {limit} to {more}; `make lab-down` puts it back, with the last lab")


def give_back(label: str) -> None:
    """Put the limit back to exactly what it was, unless another lab may need it or somebody else has set it since."""
    if not _record_file().exists():
        return
    try:
        with _alone():
            record = _read()
            if record is None:
                return
            left = tuple(lab for lab in record.labs if lab != label)
            if left:
                _write(replace(record, labs=left))
                return
            current = int(LIMIT.read_text())
            if current == record.raised:
                LIMIT.write_text(f"{record.before}\n")
            elif current != record.before:
                say(f"{_SETTING} is {current} by somebody else's doing: it stays (before the lab: {record.before})")
            _record_file().unlink()
    except PermissionError:
        say(f"{_SETTING} was raised by root, who has to put it back: run `make lab-down` as root too")


def count() -> int:
    """Return how many instances root's processes hold, as far as this user may see that; nodes' are root's."""
    held = 0
    for process in _PROCESSES.glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or isn't ours to look into
            if process.stat().st_uid == 0:
                held += sum(_is_instance(link) for link in (process / "fd").iterdir())
    return held


def used_up() -> bool:
    """Return whether this user, whose nodes' instances they are if it is root, gets no further instance."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_CLOEXEC)
    if descriptor >= 0:
        os.close(descriptor)
    return descriptor < 0 and ctypes.get_errno() == errno.EMFILE


def _is_instance(link: Path) -> bool:
    try:
        return str(link.readlink()) == "anon_inode:inotify"
    except OSError:
        return False


def _record_file() -> Path:
    return FOLDER / "inotify.json"


def _read() -> Record | None:
    try:
        stored = json.loads(_record_file().read_text())
    except FileNotFoundError:
        return None
    return Record(**{**stored, "labs": tuple(stored["labs"])})


def _write(record: Record) -> None:
    atomic_file.write_json(_record_file(), asdict(record))


@contextmanager
def _alone() -> Iterator[None]:
    """Let one lab of this machine look and change at a time."""
    FOLDER.mkdir(exist_ok=True)
    folder = os.open(FOLDER, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
