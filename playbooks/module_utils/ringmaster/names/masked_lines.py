"""Lines of others that must not count while we are here: made comments in place, and back again. Pure.

`127.0.1.1 node1` in /etc/hosts is such a line: wherever the node's cluster address stands in that file, getaddrinfo
sorts loopback addresses first.
"""

from __future__ import annotations

from collections.abc import Collection

MASK = "# ringmaster: "


def with_masked(text: str, lines: Collection[str]) -> str:
    """Return `text` in which each line that is in `lines` is a comment."""
    kept = text.splitlines(keepends=True)
    return "".join(MASK + line if line.rstrip("\r\n") in lines else line for line in kept)


def without_masked(text: str) -> str:
    """Return `text` in which our comments are lines again."""
    return "".join(line[len(MASK) :] if line.startswith(MASK) else line for line in text.splitlines(keepends=True))
