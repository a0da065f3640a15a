"""Write files that others may read at any moment: whole, or not at all."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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

    Raises:
        OSError: the file can't be written; what was there is unchanged.
    """
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        Path(part).chmod(mode)
        Path(part).replace(path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write `value` to `path` as JSON, whole or not at all.

    Raises:
        OSError: the file can't be written; what was there is unchanged.
    """
    write(path, json.dumps(value, indent=2) + "\n")
