"""Takes back what was changed in files: kinds file, block, json, folder. Each can be repeated after an interruption."""

from __future__ import annotations

import json
import os
from typing import Any

from ansible.module_utils.ringmaster_blocks import without_block
from ansible.module_utils.ringmaster_disk import read, text_of, write


def undo_file(entry: dict[str, Any]) -> None:
    """Bring back the file that was there before, or none."""
    path, before = entry["name"], entry["before"]
    if before is None:
        _delete(path)
    else:
        write(path, text_of(before), mode=before["mode"], uid=before["uid"], gid=before["gid"])


def undo_block(entry: dict[str, Any]) -> None:
    """Take our block out; what others have written around it since stays."""
    path, text = entry["name"], read(entry["name"])
    if text is None:
        return
    rest = without_block(text, final_newline=entry["final_newline"])
    if not rest and not entry["existed"]:
        _delete(path)
    elif rest != text:
        found = os.stat(path)
        write(path, rest, mode=found.st_mode & 0o7777, uid=found.st_uid, gid=found.st_gid)


def undo_json(entry: dict[str, Any]) -> None:
    """Bring back the old file; where others have changed it since, only our keys go back to what they were."""
    path, before, text = entry["name"], entry["before"], read(entry["name"])
    if text is None or text == entry.get("written"):
        if text is not None or before is not None:
            undo_file(entry)
        return
    old = json.loads(text_of(before) or "{}") if before else {}
    now = json.loads(text or "{}")
    for key in entry["keys"]:
        if key in old:
            now[key] = old[key]
        else:
            now.pop(key, None)
    if not now and before is None:
        _delete(path)
        return
    found = os.stat(path)
    write(path, json.dumps(now, indent=4) + "\n", mode=found.st_mode & 0o7777, uid=found.st_uid, gid=found.st_gid)


def undo_folder(entry: dict[str, Any]) -> None:
    """Remove a folder of ours, unless something of others is in it now."""
    folder = entry["name"]
    if os.path.isdir(folder) and not os.listdir(folder):
        os.rmdir(folder)


def _delete(path: str) -> None:
    if os.path.lexists(path):
        os.unlink(path)
