"""The manifest: what Ringmaster changed on this node, and how each thing was before.

It is a write-ahead journal: an entry is on the disk before the change it describes is made. So `reset` finds all that
may have been changed, whatever was interrupted. The first "before" is kept: later runs don't change it.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import time
from typing import Any

from ansible.module_utils.ringmaster.core.disk import flush, replacing

STATE_FOLDER = "/var/lib/ringmaster"
MANIFEST = STATE_FOLDER + "/manifest.json"
_VERSION = 1
# Set whatever root's umask is: folders of the SSH user lie in there.
_FOLDER_MODE = 0o755
# How long a task waits for another one that an interrupted run has left working.
_PATIENCE_S = 150
_locks: dict[str, int] = {}


class Manifest:
    """The entries, oldest first. Each has `role`, `kind`, `name` (together its key) and whatever its kind needs.

    A process that may change it keeps others out until it ends (`lock`): a task of an interrupted run goes on working
    on the node, and must not overwrite what the next run notes.
    """

    def __init__(self, path: str = MANIFEST, *, lock: bool = True, patience_s: float = _PATIENCE_S) -> None:
        self.path = path
        if lock:
            _keep_others_out(os.path.dirname(os.path.dirname(path)), patience_s)
        self.entries: list[dict[str, Any]] = []
        try:
            with open(path, encoding="utf-8") as stored:
                self.entries = json.load(stored)["entries"]
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path} can't be read ({error}): reset takes back what it lists; restore it, or move it aside to go on"
            ) from error

    def find(self, role: str, kind: str, name: str) -> dict[str, Any] | None:
        """Return the entry of that key, or None."""
        wanted = (role, kind, name)
        return next((one for one in self.entries if (one["role"], one["kind"], one["name"]) == wanted), None)

    def note(self, role: str, kind: str, name: str, **details: Any) -> dict[str, Any]:
        """Return the entry of that key; where there is none yet, make it with `details` and store it."""
        entry = self.find(role, kind, name)
        if entry is None:
            entry = {"role": role, "kind": kind, "name": name, **details}
            self.entries.append(entry)
            self.save()
        return entry

    def of_role(self, role: str) -> list[dict[str, Any]]:
        """Return a role's entries, the newest first: the order in which they are taken back."""
        return [one for one in reversed(self.entries) if one["role"] == role]

    def remove(self, entry: dict[str, Any]) -> None:
        """Drop an entry whose change was taken back."""
        self.entries.remove(entry)
        self.save()

    def save(self) -> None:
        """Write it in one step; without entries, remove it, and its folder unless something else is in there."""
        folder = os.path.dirname(self.path)
        if not self.entries:
            for path in (self.path, self.path + ".part"):
                if os.path.exists(path):
                    os.unlink(path)
                    flush(folder)
            if os.path.isdir(folder) and not os.listdir(folder):
                os.rmdir(folder)
            return
        if not os.path.isdir(folder):
            os.makedirs(folder)
            os.chmod(folder, _FOLDER_MODE)
            flush(os.path.dirname(folder))
        with replacing(self.path, self.path + ".part") as part:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as stored:
                json.dump({"version": _VERSION, "entries": self.entries}, stored, indent=1)


def make_folder(manifest: Manifest, role: str, folder: str, *, mode: int, owner: str) -> None:
    """Make a folder and those above it, each noted in the manifest; a folder that exists stays as it is.

    The manifest's own folder is not noted: it comes with the first entry, and goes with the last.
    """
    if os.path.isdir(folder) or folder == os.path.dirname(manifest.path):
        return
    make_folder(manifest, role, os.path.dirname(folder), mode=0o755, owner="root")
    manifest.note(role, "folder", folder)
    os.mkdir(folder)
    account = pwd.getpwnam(owner)
    os.chown(folder, account.pw_uid, account.pw_gid)
    os.chmod(folder, mode)


def _keep_others_out(folder: str, patience_s: float) -> None:
    """Lock the folder, once per process; that needs no file of ours.

    Raises:
        ValueError: another task works for longer than we wait.
    """
    if folder in _locks or not os.path.isdir(folder):
        return
    descriptor = os.open(folder, os.O_RDONLY)
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(descriptor)
                raise ValueError(
                    f"a task of an earlier run has been working on this node for {patience_s:.0f} s and more: wait for "
                    "it (`ps aux | grep AnsiballZ` shows it there), then run this again"
                ) from None
            time.sleep(0.2)
    _locks[folder] = descriptor
