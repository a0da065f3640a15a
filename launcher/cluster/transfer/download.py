"""From a node to here: what a job writes, while it runs and at its end. Fetches only what is new, each file whole."""

import errno
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import paramiko

from launcher.base.errors import RingmasterError
from launcher.base.values import amount
from launcher.cluster.transfer.policy import unfinished
from launcher.ssh.connection import Remote

HALF_FETCHED = ".fetching-"
"""How the names of files begin that are only here in part."""
_PROGRESS_S = 5.0
"""How often the transfer of one file is reported."""
_REQUESTS = 64
"""Blocks asked for at once, as OpenSSH's own sftp does. Without a limit all of a file is asked for at its beginning: on
a slow line more than can be sent within the time limit of one answer."""
_SAME_S = 2.0
"""A file that changed this shortly before the newest may change again unnoticed, where only SFTP's whole seconds are
known."""
_OF_ONE_FILE = frozenset(
    {errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.EINVAL, errno.EILSEQ, errno.EACCES}
)
"""Errors that concern one file only: the others can still be fetched."""


class GivenUpError(RingmasterError):
    """Nobody wants the rest of a transfer any more."""


@dataclass(kw_only=True)
class FolderDownload:
    """The download of one folder of a node."""

    remote: Callable[[], Remote]
    """Returns the connection as it is now."""
    source: PurePosixPath
    target: Path
    appended: frozenset[str] = frozenset({"metrics.jsonl"})
    """Files at the top that only grow: only their new part is fetched, also while they are being written."""
    aside: Path | None = None
    """Where files go whose names are taken here."""
    taken: frozenset[str] = frozenset()
    """Names at the top that the launcher uses itself."""
    marks: Callable[[str], Mapping[str, object]] = lambda _: {}
    """Returns for each file below a folder what changes with every change of it, as SFTP's whole seconds don't."""
    stays: Callable[[str, int], str] = lambda _path, _size: ""
    """Returns why a file of this path and size doesn't come home; empty: it comes."""
    say: Callable[[str], None] = lambda _: None
    """Gets the progress of a file that takes long."""
    left_behind: list[str] = field(default_factory=list)
    """What stays on the node, and why."""
    _given_up: threading.Event = field(default_factory=threading.Event)
    _fresh: set[str] = field(default_factory=set)
    """What may have changed again within the same second since it was fetched: the last fetch fetches it once more."""
    _seen: dict[str, tuple[int, float, str]] = field(default_factory=dict)
    _offsets: dict[str, int] = field(default_factory=dict)

    def fetch_appended(self) -> None:
        """Fetch what was appended to the files that only grow.

        Raises:
            OSError, EOFError, paramiko.SSHException, RingmasterError: the connection broke, or the disk here is full.
        """
        sftp = self.remote().sftp()
        for name in self.appended:
            with suppress(FileNotFoundError):
                if not stat.S_ISREG(sftp.lstat(str(self.source / name)).st_mode or 0):
                    continue  # opening a pipe would block
            with suppress(FileNotFoundError), sftp.open(str(self.source / name), "rb") as file:
                offset = self._offsets.get(name, 0)
                file.seek(offset)
                data = file.read()
                if data:
                    with (self.target / name).open("r+b" if offset else "wb") as here:
                        here.seek(offset)
                        here.write(data)
                    self._offsets[name] = offset + len(data)

    def give_up(self) -> None:
        """End a transfer in another thread at its next block, and every later one."""
        self._given_up.set()

    def fetch(self, below: str = "", *, finished: bool) -> None:
        """Fetch new and changed files below `below`.

        Args:
            finished: whether nobody writes there any more; if somebody does, files that look unfinished have to wait.

        Raises:
            OSError, EOFError, paramiko.SSHException, RingmasterError: the connection broke, or the disk here is full.
        """
        self.fetch_appended()
        sftp = self.remote().sftp()
        there = set()
        sftp.stat(str(self.source))  # raises if it is gone: then the job has not removed its files
        self.left_behind.clear()
        exact = self.marks(below)
        newest = 0.0
        for path, attributes in _files(sftp, self.source, PurePosixPath(below), self.left_behind):
            name = str(path)
            there.add(name)
            if name in self.appended or (not finished and unfinished(path.name)):
                continue
            if why := self.stays(name, attributes.st_size or 0):
                self.left_behind.append(f"{name} ({why})")
                continue
            mark = (attributes.st_size or 0, float(attributes.st_mtime or 0), str(exact.get(name, "")))
            newest = max(newest, mark[1])
            if self._seen.get(name) == mark and not (finished and name in self._fresh and name not in exact):
                continue
            try:
                whole = self._take(sftp, name, attributes)
            except OSError as error:
                if error.errno not in _OF_ONE_FILE:
                    raise
                self.left_behind.append(f"{name} ({error.strerror})")
                continue  # not noted as seen, so that the last fetch reports it again
            if whole:
                self._seen[name] = mark
            elif finished:
                self.left_behind.append(f"{name} (it changed while it was fetched)")
        self._fresh = {name for name, (_, changed, _) in self._seen.items() if changed >= newest - _SAME_S}
        for name in [name for name in self._seen if PurePosixPath(name).is_relative_to(below) and name not in there]:
            del self._seen[name]  # the job removed it there: only the newest of what we fetched is of use
            self._here(name).unlink(missing_ok=True)

    def _here(self, name: str) -> Path:
        """Where a file of the node goes here."""
        if self.aside is not None and PurePosixPath(name).parts[0] in self.taken:
            return self.aside / name
        return self.target / name

    def _take(self, sftp: paramiko.SFTPClient, name: str, attributes: paramiko.SFTPAttributes) -> bool:
        """Fetch one file or link; return False where it is being written, and nothing of it was kept."""
        here = self._here(name)
        for folder in reversed(here.relative_to(self.target).parents[:-1]):
            if (self.target / folder).is_symlink():  # it was a link there before: what is in it must not go elsewhere
                (self.target / folder).unlink()
        here.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError), part_of(here) as part:  # it may have been removed between the two calls
            if stat.S_ISLNK(attributes.st_mode or 0):
                leads = sftp.readlink(str(self.source / name))
                if not leads or leads.startswith("/") or ".." in PurePosixPath(leads).parts:
                    return True  # it leads out of the job's folder, which would mean something else here
                part.symlink_to(leads)
            else:
                if fetch_file(sftp, self.source / name, part, self._paced(name)) != attributes.st_size:
                    return False
                os.utime(part, (attributes.st_mtime or 0, attributes.st_mtime or 0))
            part.replace(here)
        return True

    def _paced(self, name: str) -> Callable[[int, int], None]:
        said_at = time.monotonic()

        def pace(done: int, total: int) -> None:
            nonlocal said_at
            if self._given_up.is_set():
                raise GivenUpError(f"{name}: the rest was not fetched")
            if time.monotonic() - said_at >= _PROGRESS_S:
                said_at = time.monotonic()
                self.say(f"fetching {name}: {amount(done)} of {amount(total)}")

        return pace


@contextmanager
def part_of(target: Path) -> Iterator[Path]:
    """Yield the name for a file that is to get the name `target` once it is whole; it is gone afterwards.

    No other fetch has that name, not even one on another machine that shares the disk. It is short, because the
    target's own may be as long as a file system allows.
    """
    part = target.with_name(f"{HALF_FETCHED}{secrets.token_hex(8)}")
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


def fetch_file(
    sftp: paramiko.SFTPClient,
    source: PurePosixPath,
    target: Path,
    on_block: Callable[[int, int], None] | None = None,
) -> int:
    """Copy a file of a node; return its size. It may take as long as it wants while blocks arrive.

    Args:
        on_block: called with the bytes that are here and the file's size; what it raises ends the transfer.
    """
    with target.open("wb") as file:
        return int(sftp.getfo(str(source), file, on_block, max_concurrent_prefetch_requests=_REQUESTS))


def _files(
    sftp: paramiko.SFTPClient, top: PurePosixPath, below: PurePosixPath, left_behind: list[str]
) -> Iterator[tuple[PurePosixPath, paramiko.SFTPAttributes]]:
    """Yield every file and link below, with its path from the top; add folders that can't be read to `left_behind`."""
    try:
        entries = sftp.listdir_attr(str(top / below))
    except OSError as error:
        if error.errno == errno.ENOENT:
            return
        raise
    except UnicodeDecodeError:
        left_behind.append(f"all in {below} (names that are not UTF-8)")
        return
    for entry in sorted(entries, key=lambda entry: entry.filename):
        if "/" in entry.filename or entry.filename in {"", ".", ".."}:
            continue
        path, mode = below / entry.filename, entry.st_mode or 0
        if stat.S_ISDIR(mode):
            yield from _files(sftp, top, path, left_behind)
        elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            yield path, entry
