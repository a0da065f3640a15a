"""`FileTree`: the files that travel to the nodes together, with sizes, hashes and order."""

import hashlib
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from launcher.base.errors import RingmasterError
from launcher.base.values import amount
from launcher.on_node.tree_store import CHUNK_BYTES, EXECUTABLE, PLAIN, Entry, manifest_of

_TRIES = 3


@dataclass(frozen=True, kw_only=True)
class FileTree:
    """Files that travel together."""

    root: Path
    """The folder that the entries' paths start from."""
    entries: tuple[Entry, ...]
    """In the order of their names' bytes."""
    warnings: tuple[str, ...] = ()

    @cached_property
    def manifest(self) -> bytes:
        """The description that the nodes get."""
        return manifest_of(self.entries)

    @cached_property
    def hash(self) -> str:
        """The same for the same names, modes and contents, wherever the files are."""
        return hashlib.sha256(self.manifest).hexdigest()

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.entries)

    @property
    def files(self) -> int:
        """How many of the entries are files."""
        return sum(1 for entry in self.entries if entry.sha256)

    def source(self, entry: Entry) -> bytes:
        """Return the path of an entry's file here."""
        return os.fsencode(self.root) + b"/" + entry.name


def describe(tree: FileTree) -> str:
    """Return the number of files and their size, for people."""
    return f"{tree.files:,} file{'' if tree.files == 1 else 's'}, {amount(tree.size)}"


def in_order(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Sort entries as a manifest does, so that an index into one is an index into the other."""
    return tuple(sorted(entries, key=lambda entry: entry.name))


def hashed_entry(root: Path, name: str, pace: Callable[[int], None] = lambda _: None) -> Entry:
    """Read a file and return its entry; if it changes meanwhile, read it again.

    Args:
        pace: called with the number of bytes after each read.

    Raises:
        RingmasterError: it can't be read, or keeps changing.
    """
    path = root / name
    for _ in range(_TRIES):
        digest, size = hashlib.sha256(), 0
        try:
            with path.open("rb") as file:
                before = os.fstat(file.fileno())
                while data := file.read(CHUNK_BYTES):
                    digest.update(data)
                    size += len(data)
                    pace(len(data))
                after = os.fstat(file.fileno())
        except OSError as error:
            raise unreadable(path, error) from error
        times = [(status.st_mtime_ns, status.st_ctime_ns) for status in (before, after)]
        if size == after.st_size and times[0] == times[1]:
            return Entry(name, mode_of(after), size, digest.hexdigest())
    raise RingmasterError(f"{path}: it changes while it is read; wait until it is complete, or add it to .gitignore")


def mode_of(status: os.stat_result) -> int:
    """Return the mode a file travels with, which keeps only whether its owner may execute it."""
    return EXECUTABLE if status.st_mode & stat.S_IXUSR else PLAIN


def unreadable(path: str | Path, error: OSError) -> RingmasterError:
    """Return the error for a file or folder that can't be read."""
    return RingmasterError(
        f"{path}: can't be read ({error.strerror}), so it can't travel to the nodes; correct its permissions"
    )
