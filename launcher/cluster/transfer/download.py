"""Fetches what a job writes on a node, while it runs and at its end: only what is new, each file whole or not."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import paramiko

from launcher.ssh.connection import Remote

_SAME_S = 2.0
"""Times come in whole seconds."""
_OF_ONE_FILE = frozenset(
    {errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.EINVAL, errno.EILSEQ, errno.EACCES}
)
"""Troubles that the other files need not share."""
_UNFINISHED = (".part", ".tmp", ".new", ".partial")
"""Names of files that are still being written, besides those that begin with a dot."""


@dataclass(kw_only=True)
class FolderDownload:
    """One folder of a node, and its image here."""

    remote: Callable[[], Remote]
    """The connection as it is now."""
    source: PurePosixPath
    target: Path
    appended: frozenset[str] = frozenset({"metrics.jsonl"})
    """Files at the top that only grow: of them the rest is fetched, also while they are written."""
    aside: Path | None = None
    """Where what has a name that is taken here goes."""
    taken: frozenset[str] = frozenset()
    """Names at the top that are ours here."""
    left: list[str] = field(default_factory=list)
    """What stays on the node, and why."""
    _fresh: set[str] = field(default_factory=set)
    """What may have changed again since, within the same second: the last fetch takes it anew."""
    _seen: dict[str, tuple[int, float]] = field(default_factory=dict)
    _offsets: dict[str, int] = field(default_factory=dict)

    def grow(self) -> None:
        """Fetch what was appended.

        Raises:
            OSError, EOFError, paramiko.SSHException, RingmasterError: the connection broke, or the disk here is full.
        """
        sftp = self.remote().sftp()
        for name in self.appended:
            with suppress(FileNotFoundError):
                if not stat.S_ISREG(sftp.lstat(str(self.source / name)).st_mode or 0):
                    continue  # a pipe would keep whoever opens it
            with suppress(FileNotFoundError), sftp.open(str(self.source / name), "rb") as file:
                offset = self._offsets.get(name, 0)
                file.seek(offset)
                data = file.read()
                if data:
                    with (self.target / name).open("r+b" if offset else "wb") as here:
                        here.seek(offset)
                        here.write(data)
                    self._offsets[name] = offset + len(data)

    def fetch(self, below: str = "", *, finished: bool) -> None:
        """Fetch new and changed files below `below`. Raises as `grow` does.

        Args:
            finished: whether nobody writes there any more; else what looks unfinished is left for later.
        """
        self.grow()
        sftp = self.remote().sftp()
        there = set()
        sftp.stat(str(self.source))  # if that is away, nothing of it was removed by the job
        self.left.clear()
        newest = 0.0
        for path, found in _files(sftp, self.source, PurePosixPath(below), self.left):
            name = str(path)
            there.add(name)
            if name in self.appended or (not finished and _unfinished(path.name)):
                continue
            mark = (found.st_size or 0, float(found.st_mtime or 0))
            newest = max(newest, mark[1])
            if self._seen.get(name) == mark and not (finished and name in self._fresh):
                continue
            try:
                self._take(sftp, name, found)
            except OSError as error:
                if error.errno not in _OF_ONE_FILE:
                    raise
                self.left.append(f"{name} ({error.strerror})")
                continue  # so that the last fetch says it again
            self._seen[name] = mark
        self._fresh = {name for name, (_, changed) in self._seen.items() if changed >= newest - _SAME_S}
        for name in [name for name in self._seen if PurePosixPath(name).is_relative_to(below) and name not in there]:
            del self._seen[name]  # gone there: of what we fetched ourselves only the newest is of use
            self._here(name).unlink(missing_ok=True)

    def _here(self, name: str) -> Path:
        """Where a file of the node goes."""
        if self.aside is not None and PurePosixPath(name).parts[0] in self.taken:
            return self.aside / name
        return self.target / name

    def _take(self, sftp: paramiko.SFTPClient, name: str, found: paramiko.SFTPAttributes) -> None:
        here = self._here(name)
        for folder in reversed(here.relative_to(self.target).parents[:-1]):
            if (self.target / folder).is_symlink():  # it was one there before: what is in it goes nowhere else
                (self.target / folder).unlink()
        here.parent.mkdir(parents=True, exist_ok=True)
        part = here.with_name(f".fetching-{os.getpid()}")  # short: a name may be as long as a file system allows
        try:
            if stat.S_ISLNK(found.st_mode or 0):
                leads = sftp.readlink(str(self.source / name))
                if not leads or leads.startswith("/") or ".." in PurePosixPath(leads).parts:
                    return  # out of the job's folder: it would mean something else here
                part.unlink(missing_ok=True)
                part.symlink_to(leads)
            else:
                sftp.get(str(self.source / name), str(part))
                os.utime(part, (found.st_mtime or 0, found.st_mtime or 0))
            part.replace(here)
        except FileNotFoundError:  # gone between the two questions
            part.unlink(missing_ok=True)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def _files(
    sftp: paramiko.SFTPClient, top: PurePosixPath, below: PurePosixPath, left: list[str]
) -> Iterator[tuple[PurePosixPath, paramiko.SFTPAttributes]]:
    """Every file and link below, by its path from the top."""
    try:
        found = sftp.listdir_attr(str(top / below))
    except OSError as error:
        if error.errno == errno.ENOENT:
            return
        raise
    except UnicodeDecodeError:
        left.append(f"all in {below} (names that are not UTF-8)")
        return
    for entry in sorted(found, key=lambda entry: entry.filename):
        if "/" in entry.filename or entry.filename in {"", ".", ".."}:
            continue
        path, mode = below / entry.filename, entry.st_mode or 0
        if stat.S_ISDIR(mode):
            yield from _files(sftp, top, path, left)
        elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            yield path, entry


def _unfinished(name: str) -> bool:
    return name.startswith(".") or name.endswith(_UNFINISHED)
