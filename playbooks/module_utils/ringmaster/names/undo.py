"""Takes back masked lines in another's file: kind mask."""

from __future__ import annotations

import os
from typing import Any

from ansible.module_utils.ringmaster.core.disk import read, write
from ansible.module_utils.ringmaster.names.masked_lines import without_masked


def undo_mask(entry: dict[str, Any]) -> None:
    """Turn the comments into lines again; text that others have written around them since stays."""
    path, text = entry["name"], read(entry["name"])
    if text is None or without_masked(text) == text:
        return
    found = os.stat(path)
    write(path, without_masked(text), mode=found.st_mode & 0o7777, uid=found.st_uid, gid=found.st_gid)
