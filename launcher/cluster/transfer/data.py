"""Which files of a user's data travel: all of a folder, or one. Hashes are remembered, because data is large."""

import errno
import json
import os
import re
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from launcher.base.atomic_file import replacing
from launcher.base.errors import RingmasterError
from launcher.base.values import amount
from launcher.cluster.transfer.file_tree import FileTree, hashed_entry, in_order, mode_of, unreadable
from launcher.on_node.tree_store import PLAIN, Entry

_SETTLED_S = 2.0
"""A file that changed this recently may change again without new times: a file system's clock is coarse."""


def list_data(path: Path, say: Callable[[str], None]) -> FileTree:
    """List every file below the folder `path`, or that file, under its own name; links are followed.

    Args:
        say: called once a second with the progress of reading.

    Raises:
        RingmasterError: there is no file, or one can't be read.
    """
    path = (path if path.name not in ("", "..") else path.resolve()).absolute()
    if not path.name or not os.path.lexists(path):
        raise RingmasterError(f"DATA: {path}: no such file or folder; give the path of the data")
    walk = _Walk(path.parent)
    walk.visit(path.name, ())
    if not walk.files:
        raise RingmasterError(f"DATA: {path}: there are no files in it")
    entries = _hashed(path.parent, walk.files, say)
    folders = (Entry(name, PLAIN) for name in walk.empty)
    return FileTree(root=path.parent, entries=in_order((*entries, *folders)), warnings=tuple(walk.warnings))


class _Walk:
    """Collects the files, empty folders and warnings below a folder."""

    def __init__(self, root: Path) -> None:
        self.files: dict[str, os.stat_result] = {}
        self.empty: list[str] = []
        self.warnings: list[str] = []
        self._root = root

    def visit(self, name: str, above: tuple[tuple[int, int], ...]) -> None:
        """Note a file, or everything below a folder; `above`: the folders that contain it, by device and inode."""
        path = self._root / name
        try:
            status = path.stat()
            here = (status.st_dev, status.st_ino)
            if stat.S_ISREG(status.st_mode):
                self.files[name] = status
            elif not stat.S_ISDIR(status.st_mode):
                self.warnings.append(f"{path}: neither a file nor a folder; left out")
            elif here in above:
                self.warnings.append(f"{path}: a link to a folder that contains it; left out")
            else:
                inside = sorted(each.name for each in path.iterdir())
                if not inside:
                    self.empty.append(name)
                for each in inside:
                    self.visit(f"{name}/{each}", (*above, here))
        except FileNotFoundError:
            self.warnings.append(f"{path}: a link to nothing; left out")
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise unreadable(path, error) from error
            self.warnings.append(f"{path}: a link to itself; left out")


def _hashed(root: Path, files: dict[str, os.stat_result], say: Callable[[str], None]) -> list[Entry]:
    known = _Hashes(_cache_folder() / "hashes.json")
    total, done, said_at = sum(status.st_size for status in files.values()), 0, time.monotonic()
    entries = []

    def pace(size: int) -> None:
        nonlocal done, said_at
        done += size
        if time.monotonic() - said_at >= 1:
            said_at = time.monotonic()
            say(f"reading the data: {amount(done)} of {amount(total)}")

    try:
        for name, status in files.items():
            entry = known.get(root, name, status)
            if entry is None:
                entry = hashed_entry(root, name, pace)
                known.put(root, entry, status)
            else:
                pace(status.st_size)
            entries.append(entry)
    finally:  # what was read before Ctrl-C need not be read again
        known.save()
    return entries


def _cache_folder() -> Path:
    folder = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(folder) if folder.startswith("/") else Path.home() / ".cache") / "ringmaster"


class _Hashes:
    """Hashes of files that were read before; each is valid while size, times and inode stay the same."""

    def __init__(self, path: Path) -> None:
        self._path, self._changed = path, False
        self._known: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            known = json.loads(path.read_bytes())
            self._known = known if isinstance(known, dict) else {}

    def get(self, root: Path, name: str, status: os.stat_result) -> Entry | None:
        row = self._known.get(str(root / name))
        if not isinstance(row, list) or len(row) != 2 or row[0] != _marks(status):
            return None
        if not isinstance(row[1], str) or not re.fullmatch("[0-9a-f]{64}", row[1]):
            return None
        return Entry(name, mode_of(status), status.st_size, row[1])

    def put(self, root: Path, entry: Entry, status: os.stat_result) -> None:
        changed = max(status.st_mtime, status.st_ctime)
        if entry.size == status.st_size and time.time() - changed > _SETTLED_S:
            self._known[str(root / entry.path)] = [_marks(status), entry.sha256]
            self._changed = True

    def save(self) -> None:
        """Write the file in one step if anything is new; without it everything still works."""
        if not self._changed:
            return
        kept = {path: row for path, row in self._known.items() if Path(path).exists()}
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with replacing(self._path, mode=0o600) as file:
                file.write(json.dumps(kept, separators=(",", ":")).encode("ascii"))


def _marks(status: os.stat_result) -> list[int]:
    # The time of change, too: cp -p, rsync -t and touch -r set the modification time back, but can't set this one.
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
