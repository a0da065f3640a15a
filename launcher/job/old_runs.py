"""Which jobs' folders in `runs/` are there, and which of them are old enough to be removed."""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.job.folder import JobFolder
from launcher.job.held import Holder, holder

_REMOVING = ".removing-"
"""Begins the name of a folder that is being removed: an interruption leaves no half job."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A job's folder."""

    folder: JobFolder
    started_at: float
    """Unix time."""
    on_this_machine: bool
    """Whether its nodes are processes of a launcher."""
    ended: bool
    """Whether its end is recorded here."""
    latest: bool
    """Whether `runs/latest` means it."""
    holder: Holder | None

    @property
    def in_use(self) -> bool:
        """Whether it may still run: a launcher follows it, or its nodes are machines and no end is known here."""
        return self.holder is not None or not (self.on_this_machine or self.ended)


def find_runs(runs: Path) -> list[Run]:
    """Return the jobs with a folder in `runs`, the newest first; links and whatever else is there are left out."""
    found = (_run(runs, path) for path in (runs.iterdir() if runs.is_dir() else ()))
    return sorted((run for run in found if run), key=lambda run: (run.started_at, run.folder.name), reverse=True)


def removable(runs: Sequence[Run], keep: int) -> list[Run]:
    """Return those that may go: all but the newest `keep`, those in use, and the one that `latest` means."""
    return [run for run in runs[keep:] if not run.in_use and not run.latest]


def remove(run: Run) -> bool:
    """Remove a job's folder, unless somebody has come to follow it; return whether it is gone.

    Raises:
        OSError: something in it can't be removed.
    """
    if holder(run.folder):
        return False
    path = run.folder.path
    going = path.with_name(f"{_REMOVING}{path.name}")
    if going.exists():
        shutil.rmtree(going)
    path.rename(going)
    shutil.rmtree(going)
    return True


def remove_leftovers(runs: Path) -> None:
    """Remove what an interrupted removal has left.

    Raises:
        OSError: something of it can't be removed.
    """
    for path in runs.glob(f"{_REMOVING}*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)


def freed_bytes(going: Sequence[Run]) -> int:
    """Return how much of the disk these folders take; a file that is linked elsewhere too frees nothing."""
    sizes: dict[tuple[int, int], int] = {}
    links: dict[tuple[int, int], int] = {}
    for entry in (entry for run in going for entry in _files(run.folder.path)):
        key = (entry.st_dev, entry.st_ino)
        links[key] = links.get(key, entry.st_nlink) - 1
        sizes[key] = entry.st_blocks * 512
    return sum(size for key, size in sizes.items() if links[key] == 0)


def _files(folder: Path) -> Iterator[os.stat_result]:
    for top, _, names in os.walk(folder, onerror=None):
        for name in names:
            try:
                yield (Path(top) / name).lstat()
            except OSError:  # it went meanwhile
                continue


def _run(runs: Path, path: Path) -> Run | None:
    folder = JobFolder(path=path)
    if path.is_symlink() or not path.is_dir() or folder.plan.is_symlink():
        return None
    try:
        plan = json.loads(folder.plan.read_bytes())
        started_at = folder.plan.stat().st_mtime
        nodes = [node["container"] for node in plan["nodes"]]
        ours = plan["name"] == path.name  # one that was renamed is the user's own to keep
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not ours or not nodes:
        return None
    return Run(
        folder=folder,
        started_at=started_at,
        on_this_machine=not any(nodes),
        ended=folder.summary.is_file(),
        latest=(runs / "latest").resolve() == path.resolve(),
        holder=holder(folder),
    )
