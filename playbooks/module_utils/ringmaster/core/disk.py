"""Writes files so that a crash leaves either the old or the new one, and keeps what isn't to change."""

from __future__ import annotations

import base64
import errno
import os
import pwd
from typing import Any

from ansible.module_utils.ringmaster.core.manifest import Manifest


def read(path: str) -> str | None:
    """Return a file's text, byte for byte (what is no UTF-8 too); None where there is none."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def state_of(path: str) -> dict[str, Any] | None:
    """Return all that is needed to bring a file back, or None where there is none."""
    text = read(path)
    if text is None:
        return None
    found = os.stat(path)
    content = base64.b64encode(text.encode("utf-8", "surrogateescape")).decode()
    return {"content": content, "mode": found.st_mode & 0o7777, "uid": found.st_uid, "gid": found.st_gid}


def text_of(state: dict[str, Any]) -> str:
    return base64.b64decode(state["content"]).decode("utf-8", "surrogateescape")


def write(path: str, text: str, *, mode: int, uid: int, gid: int) -> None:
    """Replace a file in one step; a file that is a mount (/etc/hosts in a container) is written in place.

    A link is followed: dotfiles often are links into a repository.
    """
    path = os.path.realpath(path)
    part = part_of(path)
    data = text.encode("utf-8", "surrogateescape")
    try:
        _store(part, data, os.O_CREAT | os.O_TRUNC)
        os.chown(part, uid, gid)
        os.chmod(part, mode)
        os.replace(part, path)
    except OSError as error:
        if os.path.exists(part):
            os.unlink(part)
        if error.errno not in (errno.EBUSY, errno.EXDEV):
            raise
        _store(path, data, os.O_TRUNC)


def part_of(path: str) -> str:
    """Return where a file's new text stands until it is whole; left there only by who was killed."""
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.ringmaster")


def _store(path: str, data: bytes, flags: int) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | flags, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def make_folder(manifest: Manifest, role: str, folder: str, *, mode: int, owner: str) -> None:
    """Make a folder and those above it, each noted in the manifest; one that is there stays as it is.

    The manifest's own comes with its first note, and goes with its last.
    """
    if os.path.isdir(folder) or folder == os.path.dirname(manifest.path):
        return
    make_folder(manifest, role, os.path.dirname(folder), mode=0o755, owner="root")
    manifest.note(role, "folder", folder)
    os.mkdir(folder)
    account = pwd.getpwnam(owner)
    os.chown(folder, account.pw_uid, account.pw_gid)
    os.chmod(folder, mode)
