"""Takes back an SSH key that was made here: kind key."""

from __future__ import annotations

import os
from typing import Any

from ansible.module_utils.ringmaster_disk import read


def undo_key(entry: dict[str, Any]) -> None:
    """Remove both halves, the private one first; a key that the user has put there since stays."""
    path = entry["name"]
    public = (read(f"{path}.pub") or "").strip()
    if public and entry["public"] and public != entry["public"]:
        return
    for half in (path, f"{path}.pub"):
        if os.path.lexists(half):
            os.unlink(half)
