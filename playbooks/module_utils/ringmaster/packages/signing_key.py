"""Reads the signing keys in a file that was fetched, all of them, without any program.

apt trusts every key in the file that a source names, so one that is hidden behind the expected one counts as much.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator

_BLOCK = re.compile(rb"-----BEGIN PGP PUBLIC KEY BLOCK-----[ \t]*\r?\n(.*?)-----END", re.DOTALL)
# Lines such as "Version: …" may stand above the empty line.
_HEADERS = re.compile(rb"\A(?:[^\n]*:[^\n]*\n)*[ \t]*\r?\n")
_PRIMARY = 6
# What a public key consists of: signatures, the key, trust, names, subkeys, pictures (RFC 9580, 5). Subkeys need no
# look of ours: one that the primary key hasn't signed is trusted by nobody.
_TAGS = {2, _PRIMARY, 12, 13, 14, 17}


def dearmored(content: bytes) -> bytes:
    """Return the packets in a file, binary or armored, of all its blocks; nothing if a block can't be read."""
    blocks = _BLOCK.findall(content)
    if not blocks:
        return content
    try:
        return b"".join(_decoded(block) for block in blocks)
    except binascii.Error:
        return b""


def armored(packets: bytes) -> str:
    """Return packets as the text that apt reads in a file whose name ends in .asc."""
    lines, check = base64.encodebytes(packets).decode(), base64.b64encode(_crc24(packets)).decode()
    return f"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n{lines}={check}\n-----END PGP PUBLIC KEY BLOCK-----\n"


def fingerprints(packets: bytes) -> list[str]:
    """Return the fingerprint of each primary key, in order; nothing if these aren't public keys throughout."""
    try:
        found = list(_split(packets))
        tags = [tag for tag, _ in found]
        if tags[:1] != [_PRIMARY] or not _TAGS.issuperset(tags):
            return []
        return [_fingerprint(body) for tag, body in found if tag == _PRIMARY]
    except (IndexError, ValueError):
        return []


def _decoded(block: bytes) -> bytes:
    lines = _HEADERS.sub(b"", block, count=1).split()
    return base64.b64decode(b"".join(line for line in lines if not line.startswith(b"=")), validate=True)


def _crc24(data: bytes) -> bytes:
    """Return the checksum below the lines (RFC 9580, 6.1.1), which gpg doesn't do without."""
    crc = 0xB704CE
    for octet in data:
        crc ^= octet << 16
        for _ in range(8):
            crc = crc << 1 ^ (0x1864CFB if crc & 0x800000 else 0)
    return crc.to_bytes(3, "big")


def _fingerprint(key: bytes) -> str:
    """Return the fingerprint of a version 4 key (RFC 9580, 5.5.4.2); of another version, that it is one."""
    if key[0] != 4:
        return f"that of a version {key[0]} key"
    # The format demands SHA-1; it identifies the key, nothing is signed with it.
    return hashlib.sha1(b"\x99" + len(key).to_bytes(2, "big") + key, usedforsecurity=False).hexdigest().upper()


def _split(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Give each packet's tag and body.

    Raises:
        IndexError, ValueError: it isn't a whole number of packets, each of which says how long it is.
    """
    at = 0
    while at < len(data):
        head = data[at]
        if not head & 0x80:
            raise ValueError("no packet")
        tag, octets, base = _new(head, data[at + 1]) if head & 0x40 else _old(head)
        start = at + 1 + octets
        size = int.from_bytes(data[at + 1 : start], "big") - base
        at = start + size
        if at > len(data):
            raise ValueError("a packet that was cut off")
        yield tag, data[start:at]


def _old(head: int) -> tuple[int, int, int]:
    """Return tag, number of octets that give the length, and what they are too large by."""
    if head & 3 == 3:
        raise ValueError("a packet without a length")
    return head >> 2 & 15, 1 << (head & 3), 0


def _new(head: int, first: int) -> tuple[int, int, int]:
    """Return the same for a packet of the new format, whose first octet of length is `first`."""
    if first < 192:
        return head & 63, 1, 0
    if first < 224:
        return head & 63, 2, (192 << 8) - 192
    if first < 255:
        raise ValueError("a packet in parts")
    return head & 63, 5, 255 << 32
