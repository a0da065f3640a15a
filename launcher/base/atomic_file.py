"""Files that others read at any moment: written whole or not at all."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


def write(path: Path, text: str) -> None:
    """Put `text` into the file at `path`, readable for all, in the place of what was there. Raises OSError."""
    with replacing(path) as file:
        file.write(text.encode())


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Give a new file, which takes the place of the one at `path` once the block ends well. Raises OSError."""
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        Path(part).chmod(0o644)
        Path(part).replace(path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write `value` to `path` whole or not at all."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(json.dumps(value, indent=2) + "\n")
    new.replace(path)
