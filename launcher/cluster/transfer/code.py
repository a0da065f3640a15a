"""Which files of a user's code travel to the nodes: those of its folder that git does not ignore, with their hashes."""

import errno
import os
import stat
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from launcher.base.errors import RingmasterError
from launcher.base.values import amount
from launcher.cluster.transfer.file_tree import FileTree, hashed_entry, in_order, unreadable
from launcher.on_node.tree_store import PLAIN, Entry, encoded

LARGEST_BYTES = 1_000_000_000
MOST_FILES = 100_000
_GIT_PLACES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY")
"""Set in git's hooks; they would make git look elsewhere."""
_JUNK = frozenset(
    {
        *(".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", ".tox", ".nox", ".DS_Store"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".ipynb_checkpoints"),
    }
)
"""Names that nobody wants on a node, but that may be missing from .gitignore."""


def list_code(root: Path, program: Path | None, *, secrets: Path | None = None) -> FileTree:
    """List what travels of the code below `root`: what git doesn't ignore (without git all but junk), and what is run.

    Args:
        program: the file that is run, if it is below `root`.
        secrets: a file that stays here even if it is among them: its copy would outlive the job on the nodes.

    Raises:
        RingmasterError: the code is too large, or a file can't be read.
    """
    warnings: list[str] = []
    listing = _Listing(root, warnings)
    try:
        names = _git_names(root, warnings)
        names = set(_all_names(root)) if names is None else names
        run = _script_names(root, program) if program else set()
        for name in sorted(names | run, key=encoded):
            if secrets is None or not _same(root / name, secrets):
                listing.add(name)
    except OSError as error:
        raise unreadable(error.filename or root, error) from error
    _refuse_too_much(root, listing.sizes)
    listing.warn_of_lost_targets()
    hashed = (hashed_entry(root, name) for name in listing.sizes)
    return FileTree(root=root, entries=in_order((*hashed, *listing.links)), warnings=tuple(warnings))


def _same(one: Path, other: Path) -> bool:
    """Whether both are the same file, under any names."""
    try:
        return one.samefile(other)
    except OSError:
        return False


def _git_names(root: Path, warnings: list[str]) -> set[str] | None:
    """Tracked and untracked names that git doesn't ignore, also in submodules; None if git doesn't know the folder."""
    # A repository's own settings may name a program for git to run (core.fsmonitor): listing must run nothing.
    words = [
        "git",
        "-c",
        "core.fsmonitor=false",
        "-C",
        str(root),
        "ls-files",
        "-z",
        "-t",
        "-c",
        "-o",
        "--exclude-standard",
    ]
    environment = {name: value for name, value in os.environ.items() if name not in _GIT_PLACES} | {"LC_ALL": "C"}
    try:
        done = subprocess.run(words, capture_output=True, check=False, env=environment, stdin=subprocess.DEVNULL)
        code, messages = done.returncode, done.stderr.decode(errors="replace").splitlines()
    except FileNotFoundError:
        code, messages = 127, ["git is not installed"]
    if code:
        if (root / ".git").exists():
            why = messages[0].removeprefix("fatal: ") if messages else "it gives no reason"
            warnings.append(f"{root}: git can't list it ({why}): all its files travel, except the usual junk")
        return None
    warnings += [f"git: {line}" for line in messages]
    names: set[str] = set()
    for line in done.stdout.split(b"\0")[:-1]:
        tracked, name = line[:1] != b"?", line[2:].decode("utf-8", "surrogateescape").rstrip("/")
        path = root / name
        if not tracked and _is_junk(name):
            continue
        if path.is_dir() and not path.is_symlink():  # a submodule, or another repository inside this one
            inner = _git_names(path, warnings) if (path / ".git").exists() else None
            names |= {f"{name}/{each}" for each in (_all_names(path) if inner is None else inner)}
        else:
            names.add(name)
    return names


def _is_junk(name: str) -> bool:
    return name.endswith((".pyc", ".pyo")) or not _JUNK.isdisjoint(name.split("/"))


def _all_names(root: Path) -> Iterator[str]:
    """All names below a folder, except junk."""

    def refuse(error: OSError) -> None:
        raise error

    for folder, folders, files in os.walk(root, onerror=refuse):
        here = Path(folder)
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = [
            name
            for name in folders
            if name not in links and not _is_junk(name) and not (here / name / "pyvenv.cfg").exists()
        ]
        yield from (str((here / name).relative_to(root)) for name in (*files, *links) if not _is_junk(name))


def _script_names(root: Path, script: Path) -> set[str]:
    """The script, and the file behind it if it, or a folder above it, is a link."""
    below, real, real_root = script.relative_to(root), script.resolve(), root.resolve()
    if not real.is_relative_to(real_root):
        return {str(below)}
    behind = str(real.relative_to(real_root))
    by_link = any((root / folder).is_symlink() for folder in [*below.parents][:-1])
    return {behind} if by_link else {str(below), behind}


class _Listing:
    """Sorts names into files to read, links to keep, and things that can't travel."""

    def __init__(self, root: Path, warnings: list[str]) -> None:
        self.sizes: dict[str, int] = {}
        self.links: list[Entry] = []
        self._root, self._real, self._warnings = root, root.resolve(), warnings

    def add(self, name: str) -> None:
        """Add one name; a file that was deleted, though git still tracks it, is skipped."""
        path = self._root / name
        try:
            if path.is_symlink() and self._keep_link(path, name):
                return
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            if path.is_symlink():
                self._warnings.append(f"{path}: a link to nothing; left out")
            return
        except (RuntimeError, OSError) as error:
            if isinstance(error, OSError) and error.errno != errno.ELOOP:
                raise
            self._warnings.append(f"{path}: a link to itself; left out")
            return
        if stat.S_ISREG(status.st_mode):
            self.sizes[name] = status.st_size
            if path.is_symlink():
                self._warnings.append(
                    f"{path}: a link out of {self._root}: the file behind it ({path.resolve()}) travels instead"
                )
        elif stat.S_ISDIR(status.st_mode):
            self._warnings.append(f"{path}: a link to a folder outside {self._root}; left out")
        else:
            self._warnings.append(f"{path}: neither a file nor a link; left out")

    def _keep_link(self, path: Path, name: str) -> bool:
        """Keep a link that stays inside; otherwise return False, for the file behind it to travel in its place."""
        real, text = path.resolve(), str(path.readlink())
        if not real.is_relative_to(self._real):
            return False
        if _target(name, text) is None:  # it ends inside, but its path leads elsewhere on a node
            text = os.path.relpath(real, path.parent.resolve())
        if _target(name, text) is None:
            return False
        self.links.append(Entry(name, PLAIN, link=text))
        return True

    def warn_of_lost_targets(self) -> None:
        """Warn of links to something that doesn't travel."""
        names = {*self.sizes, *(link.path for link in self.links)}
        there = names.union(str(folder) for name in names for folder in Path(name).parents)
        for link in self.links:
            if _target(link.path, link.link) not in there:
                self._warnings.append(
                    f"{self._root / link.path}: a link to {link.link}, which doesn't exist or is ignored"
                )


def _target(name: str, text: str) -> str | None:
    """The path below the root that a link at `name` with this text leads to; None: outside."""
    target = os.path.normpath(f"{name}/../{text}" if not text.startswith("/") else text)
    return None if target.startswith(("/", "../")) or target == ".." else target


def _refuse_too_much(root: Path, sizes: Mapping[str, int]) -> None:
    total = sum(sizes.values())
    if total <= LARGEST_BYTES and len(sizes) <= MOST_FILES:
        return
    largest: Counter[str] = Counter()
    for name, size in sizes.items():
        top, slash, _ = name.partition("/")
        largest[top + slash] += size if total > LARGEST_BYTES else 1
    show = amount if total > LARGEST_BYTES else "{:,} files".format
    most = ", ".join(f"{name} {show(count)}" for name, count in largest.most_common(3))
    raise RingmasterError(
        f"{root}: {len(sizes):,} files with {amount(total)} would travel as code, most of it {most}; the limit "
        f"is {amount(LARGEST_BYTES)} and {MOST_FILES:,} files: add what isn't code to .gitignore, give data with DATA="
    )
