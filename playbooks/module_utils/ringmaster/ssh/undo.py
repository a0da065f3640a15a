"""Takes back an SSH key that we made: kind key."""

from __future__ import annotations

import os
from typing import Any

from ansible.module_utils.ringmaster.ssh.node_key import derived, is_same, public_file, remove, temporary


def undo_key(entry: dict[str, Any]) -> None:
    """Remove each half that is the noted key's, the private one first; a key of the user's in its place stays."""
    path, noted = entry["name"], entry["public"]
    remove(temporary(path))
    if is_same(derived(path), noted):
        os.unlink(path)
    if is_same(public_file(path), noted):
        os.unlink(f"{path}.pub")
