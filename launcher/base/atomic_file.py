"""Write files that others may read at any moment: whole, or not at all."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def write(path: Path, text: str) -> None:
    """Replace the file at `path` with `text`, readable by everybody.

    Raises:
        OSError: the file can't be written; what was there is unchanged.
    """
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(part).chmod(0o644)
        Path(part).replace(path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write `value` to `path` as JSON, whole or not at all.

    Raises:
        OSError: the file can't be written; what was there is unchanged.
    """
    new = path.with_name(f".{path.name}.new")
    new.write_text(json.dumps(value, indent=2) + "\n")
    new.replace(path)
