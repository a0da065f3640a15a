#!/usr/bin/python
"""Ansible module: makes folders that belong to the user who runs jobs, and to nobody else; notes each for reset.

`ringmaster_files` makes folders for files, and takes back only empty ones; these are taken back with their content.
"""

from __future__ import annotations

import os
import pwd
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.ringmaster.core.manifest import Manifest, make_folder
from ansible.module_utils.ringmaster.folders.job_folders import KIND, attributes

FOLDER = {
    "path": {"type": "path", "required": True},
    "mode": {"type": "str", "required": True},
    # Numbers: the image's own user has no account here.
    "uid": {"type": "int", "required": True},
    "gid": {"type": "int", "required": True},
    # Whether its folders are jobs, whose results must not be lost.
    "jobs": {"type": "bool", "required": True},
}


def ensure(manifest: Manifest, role: str, folder: dict[str, Any], check: bool) -> dict[str, str] | None:
    """Make one folder as wanted; return the difference, or None where there is none.

    A link is followed, and the folder behind it noted.
    """
    path = os.path.realpath(folder["path"])
    wanted = {"mode": int(folder["mode"], 8), "uid": folder["uid"], "gid": folder["gid"]}
    present, known = attributes(path), manifest.find(role, KIND, path) is not None
    if present == wanted:
        return None
    if present is None and os.path.lexists(path):
        raise ValueError(f"{path} is a file, not a folder: move it away, or name another place")
    if present and not known:
        refuse_others(path, present["uid"], wanted["uid"])
    if not check:
        if present is None:
            make_folder(manifest, role, os.path.dirname(path), mode=0o755, owner="root")
        manifest.note(role, KIND, path, before=present, jobs=folder["jobs"])
        settle(path, present, wanted, known)
    return {"before_header": path, "after_header": path, "before": described(present), "after": described(wanted)}


def settle(path: str, present: dict[str, int] | None, wanted: dict[str, int], known: bool) -> None:
    """Make the folder, and give it to its owner, with its content first."""
    if present is None:
        os.mkdir(path, 0o700)
    elif known and present["uid"] != wanted["uid"]:
        hand_over(path, present["uid"], wanted["uid"], wanted["gid"])
    os.chown(path, wanted["uid"], wanted["gid"])
    os.chmod(path, wanted["mode"])


def hand_over(path: str, before: int, uid: int, gid: int) -> None:
    """Give the folder's content to its new owner, as far as it belongs to the one before.

    It works by descriptors, because the owner before could put links in our way.
    """
    for _, folders, files, here in os.fwalk(path):
        for name in folders + files:
            if os.stat(name, dir_fd=here, follow_symlinks=False).st_uid == before:
                os.chown(name, uid, gid, dir_fd=here, follow_symlinks=False)


def refuse_others(path: str, owner: int, uid: int) -> None:
    """Refuse to take a folder from others: one of the system's (/var/lib), or a disk that others use too.

    Raises:
        ValueError: it belongs to another, and not everything in it is the user's.
    """
    if owner == uid or all(os.lstat(os.path.join(path, name)).st_uid == uid for name in os.listdir(path)):
        return
    raise ValueError(
        f"{path} belongs to {account(owner)} and is in use by others: name a folder of its own, such as "
        f"{path}/ringmaster, or give it to {account(uid)} with what is in it"
    )


def account(uid: int) -> str:
    """Return a user's name, or their number where they have none here."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def described(folder: dict[str, int] | None) -> str:
    """Return a folder's owner and mode as a line for a diff."""
    return f"a folder of {folder['uid']}:{folder['gid']}, mode {folder['mode']:04o}\n" if folder else ""


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "role": {"type": "str", "required": True},
            "folders": {"type": "list", "elements": "dict", "options": FOLDER, "required": True},
        },
        supports_check_mode=True,
    )
    parameters = module.params
    try:
        manifest = Manifest()
        diffs = [ensure(manifest, parameters["role"], folder, module.check_mode) for folder in parameters["folders"]]
    except (OSError, ValueError, KeyError) as error:
        module.fail_json(msg=str(error))
    diff = [one for one in diffs if one is not None]
    module.exit_json(changed=bool(diff), paths=[one["before_header"] for one in diff], diff=diff)


if __name__ == "__main__":
    main()
