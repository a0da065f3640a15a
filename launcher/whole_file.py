"""Files that others read at any moment: written whole or not at all."""

import os
import tempfile
from pathlib import Path


def write(path: Path, text: str) -> None:
    """Put `text` into the file at `path`, readable for all, in the place of what was there. Raises OSError."""
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(part).chmod(0o644)
        Path(part).replace(path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
