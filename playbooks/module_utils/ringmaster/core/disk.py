"""Reads files byte for byte, and writes them so that a crash leaves either the old file or the new one."""

from __future__ import annotations

import base64
import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Any


def read(path: str) -> str | None:
    """Return a file's text, byte for byte (even where it is no UTF-8); None where there is no file."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def state_of(path: str) -> dict[str, Any] | None:
    """Return all that is needed to bring a file back, or None where there is no file."""
    text = read(path)
    if text is None:
        return None
    status = os.stat(path)
    content = base64.b64encode(text.encode("utf-8", "surrogateescape")).decode()
    return {"content": content, "mode": status.st_mode & 0o7777, "uid": status.st_uid, "gid": status.st_gid}


def text_of(state: dict[str, Any]) -> str:
    """Return the text in what `state_of` returned."""
    return base64.b64decode(state["content"]).decode("utf-8", "surrogateescape")


def write(path: str, text: str, *, mode: int, uid: int, gid: int) -> None:
    """Replace a file in one step; a file that is a mount (/etc/hosts in a container) is written in place.

    A link is followed: dotfiles often are links into a repository.
    """
    path = os.path.realpath(path)
    data = text.encode("utf-8", "surrogateescape")
    try:
        with replacing(path, part_of(path)) as part:
            _store(part, data, os.O_CREAT | os.O_TRUNC)
            os.chown(part, uid, gid)
            os.chmod(part, mode)
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.EXDEV):
            raise
        _store(path, data, os.O_TRUNC)
        flush(path)


@contextlib.contextmanager
def replacing(path: str, part: str) -> Iterator[str]:
    """Give `part` to write a file at, which becomes `path` in one step once it is whole and on the disk.

    Its name there is on the disk, too, when this ends: what relies on the file may begin.

    Where writing it fails, `path` stays as it is and nothing is left at `part`; only a killed process leaves it there.
    """
    try:
        yield part
        flush(part)
        os.replace(part, path)
        flush(os.path.dirname(os.path.abspath(path)))
    except BaseException:
        if os.path.lexists(part):
            os.unlink(part)
        raise


def flush(*paths: str) -> None:
    """Wait until files, or the names in folders, are on the disk."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def part_of(path: str) -> str:
    """Return where a file's new text is written until it is whole."""
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.ringmaster")


def _store(path: str, data: bytes, flags: int) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | flags, 0o600), "wb") as file:
        file.write(data)
