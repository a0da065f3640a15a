"""Finds whose SSH key lies at a path, from the private half itself: a public one beside it may be stale or missing."""

from __future__ import annotations

import base64
import os
import struct
from typing import Any

from ansible.module_utils.ringmaster.core.disk import read

_BEGIN, _END = "-----BEGIN OPENSSH PRIVATE KEY-----", "-----END OPENSSH PRIVATE KEY-----"
_MAGIC = b"openssh-key-v1\0"


def derived(path: str) -> str | None:
    """Return the public half (`type key`) of a private key in OpenSSH's own format, which ours have; else None.

    That format has it unencrypted, before the part that a passphrase protects: it takes no program and no passphrase.
    """
    try:
        _, begins, rest = (read(path) or "").partition(_BEGIN)
        body, ends, _ = rest.partition(_END)
        data = base64.b64decode("".join(body.split()), validate=True)
        if not begins or not ends or not data.startswith(_MAGIC):
            return None
        place = len(_MAGIC)
        for _ in ("cipher", "key derivation", "its options"):
            place += 4 + len(_string(data, place))
        public = _string(data, place + 4)
        return f"{_string(public, 0).decode('ascii')} {base64.b64encode(public).decode()}"
    except (OSError, ValueError, struct.error):
        return None


def is_same(one: str | None, other: str | None) -> bool:
    """Return whether two public halves are the same key, whatever their comments."""
    return bool(one and other) and (one or "").split()[:2] == (other or "").split()[:2]


def is_ours(entry: dict[str, Any]) -> bool:
    """Return whether the noted key still lies at its path; its public file may be missing, but not be another's."""
    path, noted = entry["name"], entry["public"]
    return is_same(derived(path), noted) and (not os.path.lexists(f"{path}.pub") or is_same(public_file(path), noted))


def public_file(path: str) -> str | None:
    """Return the text of the public half's file; None where it can't be read."""
    try:
        return (read(f"{path}.pub") or "").strip() or None
    except OSError:
        return None


def temporary(path: str) -> str:
    """Return where a key is made, so that it is noted before it gets its name: this name is always ours."""
    return f"{path}.ringmaster"


def remove(path: str) -> None:
    """Remove both halves, the private one first."""
    for half in (path, f"{path}.pub"):
        if os.path.lexists(half):
            os.unlink(half)


def _string(data: bytes, place: int) -> bytes:
    (length,) = struct.unpack_from(">I", data, place)
    if place + 4 + length > len(data):
        raise ValueError("cut off")
    return data[place + 4 : place + 4 + length]
