"""Computes the fingerprint of a signing key that was fetched, without any program."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re


def fingerprint(armored: str) -> str:
    """Return the fingerprint of an OpenPGP version 4 key (RFC 4880, 12.2), or nothing if it is no such key."""
    block = re.search(
        r"-----BEGIN PGP PUBLIC KEY BLOCK-----\n(?:.*:.*\n)*\s*\n(.*?)\n(?:=|-----END)", armored, re.DOTALL
    )
    try:
        data = base64.b64decode(block[1]) if block else b""
        body = _first_packet(data)
    except (binascii.Error, IndexError):
        return ""
    if body[:1] != b"\x04":
        return ""
    # The format demands SHA-1; it identifies the key, nothing is signed with it.
    return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body, usedforsecurity=False).hexdigest().upper()


def _first_packet(data: bytes) -> bytes:
    """Return the body of the first packet, the primary key: old format (tag 6) or new."""
    if data[0] & 0x40:
        size = data[1]
        if size < 192:
            return data[2 : 2 + size]
        length = ((size - 192) << 8) + data[2] + 192
        return data[3 : 3 + length]
    octets = 1 << (data[0] & 3)
    start = 1 + octets
    return data[start : start + int.from_bytes(data[1:start], "big")]
