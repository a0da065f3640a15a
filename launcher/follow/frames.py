"""A node's output taken apart: its ranks' lines and events, and what the agent itself prints."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from launcher.on_node.rank import EVENT, FRAME, LINE, PIECE


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line that a rank, or (rank None) the node's agent, printed; no newline, undecoded."""

    rank: int | None
    text: bytes


@dataclass(frozen=True, kw_only=True)
class Event:
    """A rank's start or end, as `launcher/on_node/rank.py` reports it."""

    rank: int
    fields: dict[str, Any]


class StreamReader:
    """Takes a stream of frames apart; feed it bytes as they come."""

    def __init__(self) -> None:
        self._rest = b""
        self._pieces: dict[int, bytes] = {}

    def feed(self, data: bytes) -> Iterator[Line | Event]:
        """Yield the items that `data` completes; empty `data` is the end of the stream, and yields what is left."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not data and self._rest:
            lines, self._rest = [self._rest], b""
        for line in lines:
            yield from self._item(line)

    def _item(self, line: bytes) -> Iterator[Line | Event]:
        head, kind, text = _frame(line)
        if head is None:
            yield Line(rank=None, text=line)
        elif kind == PIECE:
            self._pieces[head] = self._pieces.get(head, b"") + text
        elif kind == LINE:
            yield Line(rank=head, text=self._pieces.pop(head, b"") + text)
        else:
            yield Event(rank=head, fields=json.loads(text))


def _frame(line: bytes) -> tuple[int | None, bytes, bytes]:
    """Return (rank, kind, text) of a frame; the rank is None for a line that is no frame."""
    if not line.startswith(FRAME):
        return None, b"", line
    digits = len(line) - len(line[1:].lstrip(b"0123456789"))
    kind = line[digits : digits + 1]
    if digits < 2 or kind not in (LINE, PIECE, EVENT):
        return None, b"", line
    return int(line[1:digits]), kind, line[digits + 1 :]
