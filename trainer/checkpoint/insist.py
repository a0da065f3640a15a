"""The checkpoint that a run must not end without: tried again, then elsewhere, then with room made. Free of torch."""

import errno
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer.checkpoint.files import CheckpointFolder, patiently, reason, remove


class UnsavedError(Exception):
    """No folder took the checkpoint; the message says what each of them answered."""


def insist(
    folder: CheckpointFolder, content: bytes, facts: Mapping[str, Any], *, keep: int, say: Callable[[str], None]
) -> Path:
    """Write a checkpoint, wherever the disk takes it, and return its path.

    First in its folder, a few times. Then in the last resort. Then older checkpoints make room for it, never the
    newest valid one.

    Raises:
        UnsavedError: nothing helped; what was there before is intact.
    """
    refusals: dict[Path, OSError | MemoryError] = {}
    for place in folder.folders:
        try:
            path = patiently(lambda place=place: folder.write(content, facts, keep=keep, to=place))  # type: ignore[misc]
        except (OSError, MemoryError) as refusal:
            refusals[place] = refusal
        else:
            for refused, error in refusals.items():
                say(f"{refused} takes no checkpoint: {reason(error)}; it is written to {path.parent}")
            return path
    for place, error in refusals.items():
        if _is_full(error):
            made = _with_room_made(folder, place, content, facts, keep=keep, say=say)
            if made is not None:
                return made
    raise UnsavedError("; ".join(_refusal(place, error, len(content)) for place, error in refusals.items()))


def _with_room_made(
    folder: CheckpointFolder,
    place: Path,
    content: bytes,
    facts: Mapping[str, Any],
    *,
    keep: int,
    say: Callable[[str], None],
) -> Path | None:
    """Remove older checkpoints in `place`, one by one, until there is room; None if that is never the case."""
    try:
        older = [path for path in folder.expendable() if path.parent == place]
    except OSError:  # which one is the newest valid one is not known, so none may go
        return None
    if not _would_help(older, place, len(content)):
        return None
    for old in older:
        try:
            remove(old)
            say(f"{place} is full: removed the older checkpoint {old.stem} to make room for the last one")
            return folder.write(content, facts, keep=keep, to=place)
        except OSError:
            continue
    return None


def _is_full(error: OSError | MemoryError) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _would_help(older: Sequence[Path], place: Path, needed: int) -> bool:
    """Return whether there is room without these; what else links to such a file keeps its room."""
    try:
        files = [path.with_suffix(".pt").stat() for path in older]
        return shutil.disk_usage(place).free + sum(file.st_size for file in files if file.st_nlink == 1) >= needed
    except OSError:
        return False


def _refusal(place: Path, error: OSError | MemoryError, needed: int) -> str:
    """Return what a folder answered, with the room that is missing if it is known."""
    words = f"{place}: {reason(error)}"
    if not _is_full(error):
        return words
    try:
        free = shutil.disk_usage(place).free
    except OSError:
        return f"{words} ({_size(needed)} needed)"
    missing = f", {_size(needed - free)} more" if free < needed else ""
    return f"{words} ({_size(needed)} needed{missing}, {_size(free)} free)"


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count / 1e3:,.1f} kB"
