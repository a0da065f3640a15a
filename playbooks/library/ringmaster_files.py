#!/usr/bin/python
"""Ansible module: writes files, blocks in others' files, keys of JSON files, folders; notes each so it can be undone.

`ansible.builtin.blockinfile` and `copy` don't remember how a file was; this module records that in the node's manifest
before it changes anything.
"""

from __future__ import annotations

import json
import os
import pwd
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ringmaster.core.blocks import with_block
from ansible.module_utils.ringmaster.core.disk import read, state_of, write
from ansible.module_utils.ringmaster.core.manifest import Manifest, make_folder

FILE = {
    "path": {"type": "path", "required": True},
    "text": {"type": "str", "default": ""},
    "how": {"type": "str", "choices": ["file", "block", "json", "folder"], "default": "file"},
    "top": {"type": "bool", "default": False},
    "mode": {"type": "str", "default": "0644"},
    "owner": {"type": "str", "default": "root"},
    "folder_mode": {"type": "str", "default": "0755"},
}


def wanted_text(file: dict[str, Any], old: str | None) -> str:
    """Return the wanted text of the file, given its present text."""
    if file["how"] == "file":
        return str(file["text"])
    if file["how"] == "block":
        return with_block(old or "", file["text"], top=file["top"])
    keys = json.loads(old or "{}")
    merged = {**keys, **json.loads(file["text"])}
    return old if old and merged == keys else json.dumps(merged, indent=4) + "\n"


def note(manifest: Manifest, role: str, file: dict[str, Any], old: str | None) -> None:
    """Record how the file was, and for JSON the keys that we set."""
    path, how = file["path"], file["how"]
    if how == "block":
        closed = not old or old.endswith("\n")
        manifest.note(role, how, path, existed=old is not None, final_newline=closed)
    elif how == "json":
        entry = manifest.note(role, how, path, before=state_of(path), ours={})
        entry["ours"].update(json.loads(file["text"]))
        manifest.save()
    else:
        manifest.note(role, how, path, before=state_of(path))


def attributes(file: dict[str, Any]) -> dict[str, int]:
    """Return mode and owner: the wanted ones for a file of ours, the present ones for another's."""
    account = pwd.getpwnam(file["owner"])
    status = os.stat(file["path"]) if os.path.exists(file["path"]) else None
    if status is not None and file["how"] != "file":
        return {"mode": status.st_mode & 0o7777, "uid": status.st_uid, "gid": status.st_gid}
    return {"mode": int(file["mode"], 8), "uid": account.pw_uid, "gid": account.pw_gid}


def is_so(file: dict[str, Any], old: str | None, new: str) -> bool:
    """Return whether text, mode and owner are as wanted."""
    if old != new:
        return False
    status = os.stat(file["path"])
    return {"mode": status.st_mode & 0o7777, "uid": status.st_uid, "gid": status.st_gid} == attributes(file)


def ensure(manifest: Manifest, role: str, file: dict[str, Any], check: bool) -> dict[str, str] | None:
    """Make one file as wanted; return the difference, or None where there is none.

    A link is followed, and its target noted: dotfiles often are links, and the link is the user's.

    Raises:
        ValueError: the present text can't be changed, such as broken JSON or a damaged block.
    """
    file = {**file, "path": os.path.realpath(file["path"])}
    path = file["path"]
    if file["how"] == "folder":
        return ensure_folder(manifest, role, file, check)
    old = read(path)
    try:
        new = wanted_text(file, old)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if is_so(file, old, new):
        return None
    if not check:
        make_folder(manifest, role, os.path.dirname(path), mode=int(file["folder_mode"], 8), owner=file["owner"])
        note(manifest, role, file, old)
        write(path, new, **attributes(file))
    return {"before_header": path, "after_header": path, "before": old or "", "after": new}


def ensure_folder(manifest: Manifest, role: str, file: dict[str, Any], check: bool) -> dict[str, str] | None:
    """Make a missing folder; an existing one stays as it is."""
    path = file["path"]
    if os.path.isdir(path):
        return None
    if not check:
        make_folder(manifest, role, path, mode=int(file["folder_mode"], 8), owner=file["owner"])
    return {"before_header": path, "after_header": path, "before": "", "after": "a folder\n"}


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "role": {"type": "str", "required": True},
            "files": {"type": "list", "elements": "dict", "options": FILE, "required": True},
        },
        supports_check_mode=True,
    )
    try:
        manifest = Manifest()
        diffs = [ensure(manifest, module.params["role"], file, module.check_mode) for file in module.params["files"]]
    except (OSError, ValueError, KeyError) as error:
        module.fail_json(msg=str(error))
    diff = [one for one in diffs if one is not None]
    module.exit_json(changed=bool(diff), paths=[one["before_header"] for one in diff], diff=diff)


if __name__ == "__main__":
    main()
