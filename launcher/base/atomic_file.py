"""Write files that others may read at any moment: whole, or not at all."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any


def write(path: Path, text: str) -> None:
    """Replace the file at `path` with `text`, readable by everybody.

    Raises:
        OSError: the file can't be written; what was there is unchanged.
    """
    with replacing(path) as file:
        file.write(text.encode())


@contextmanager
def replacing(path: Path, *, mode: int = 0o644) -> Iterator[IO[bytes]]:
    """Give a new file that replaces the one at `path` once the block ends well; its mode lets everybody read it.

    Its content is on the disk before it gets the name, so that no power cut leaves an empty file there.

    Raises:
        OSError: the file can't be written; what was there is unchanged.
    """
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(part).chmod(mode)
        Path(part).replace(path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
    with suppress(OSError):  # some network file systems can't; the file is there all the same
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Wait until the folder's names are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    """Write `value` to `path` as JSON, whole or not at all.

    Raises:
        OSError: the file can't be written; what was there is unchanged.
    """
    write(path, json.dumps(value, indent=2) + "\n")
