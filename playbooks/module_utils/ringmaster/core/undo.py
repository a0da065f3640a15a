"""Takes back changes of files: kinds file, block, json, folder. Each can be repeated after an interruption."""

from __future__ import annotations

import json
import os
from typing import Any

from ansible.module_utils.ringmaster.core.blocks import without_block
from ansible.module_utils.ringmaster.core.disk import part_of, read, text_of, write


def undo_file(entry: dict[str, Any]) -> None:
    """Bring back the file as it was before, or its absence."""
    path, before = entry["name"], entry["before"]
    _delete(part_of(path))
    if before is None:
        _delete(path)
    else:
        write(path, text_of(before), mode=before["mode"], uid=before["uid"], gid=before["gid"])


def undo_block(entry: dict[str, Any]) -> None:
    """Take our block out; text that others have written around it since stays."""
    path, text = entry["name"], read(entry["name"])
    _delete(part_of(path))
    if text is None:
        return
    rest = without_block(text, final_newline=entry["final_newline"])
    if not rest and not entry["existed"]:
        _delete(path)
    elif rest != text:
        status = os.stat(path)
        write(path, rest, mode=status.st_mode & 0o7777, uid=status.st_uid, gid=status.st_gid)


def undo_json(entry: dict[str, Any]) -> None:
    """Take back each value that is still ours: byte for byte, unless others have changed something since."""
    path, before, text = entry["name"], entry["before"], read(entry["name"])
    _delete(part_of(path))
    if text is None:
        return
    old = json.loads(text_of(before) or "{}") if before else {}
    rest = _taken_back(json.loads(text or "{}"), entry["ours"], old)
    if rest == old:
        undo_file(entry)
        return
    status = os.stat(path)
    write(path, json.dumps(rest, indent=4) + "\n", mode=status.st_mode & 0o7777, uid=status.st_uid, gid=status.st_gid)


def _taken_back(now: dict[str, Any], ours: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Return `now` with each value that is still ours as before (`old`); values that others have set since stay."""
    rest = {}
    for key, value in now.items():
        if key not in ours:
            rest[key] = value
        elif value == ours[key]:
            if key in old:
                rest[key] = old[key]
        elif isinstance(value, dict) and isinstance(ours[key], dict):
            before = old.get(key)
            inner = _taken_back(value, ours[key], before if isinstance(before, dict) else {})
            if inner:
                rest[key] = inner
        else:
            rest[key] = value
    return rest


def undo_folder(entry: dict[str, Any]) -> None:
    """Remove a folder of ours, unless something is in it now."""
    folder = entry["name"]
    if os.path.isdir(folder) and not os.listdir(folder):
        os.rmdir(folder)


def _delete(path: str) -> None:
    if os.path.lexists(path):
        os.unlink(path)
