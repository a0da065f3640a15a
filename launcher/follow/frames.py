"""A node's output taken apart: its ranks' lines and events, and what the agent itself prints."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from launcher.on_node.rank import EVENT, FRAME, LINE, PIECE


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Lines that a rank, or (rank None) the node's agent, printed one after the other; no newlines, undecoded."""

    rank: int | None
    texts: list[bytes]


@dataclass(frozen=True, kw_only=True)
class Event:
    """A rank's start or end, as `launcher/on_node/rank.py` reports it."""

    rank: int
    fields: dict[str, Any]


class StreamReader:
    """Takes a stream of frames apart; feed it bytes as they come."""

    def __init__(self) -> None:
        self._rest = b""
        self._pieces: dict[int, list[bytes]] = {}

    def feed(self, data: bytes) -> Iterator[Lines | Event]:
        """Yield the items that `data` completes; empty `data` is the end of the stream, and yields what is left."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not data and self._rest:
            lines, self._rest = [self._rest], b""
        author: int | None = None
        texts: list[bytes] = []
        head = b"\n"  # how the next line begins if it is a whole one of the same rank; "\n": not known
        for line in lines:
            if line.startswith(head):  # most lines, if a rank prints much
                texts.append(line[len(head) :])
                continue
            rank, item = self._item(line)
            if texts and (rank != author or not isinstance(item, bytes)):
                yield Lines(rank=author, texts=texts)
                texts = []
            author, head = rank, b"\n"
            if isinstance(item, Event):
                yield item
            elif item is not None:
                texts.append(item)
                if rank is not None:
                    head = FRAME + b"%d" % rank + LINE
        if texts:
            yield Lines(rank=author, texts=texts)

    def _item(self, line: bytes) -> tuple[int | None, bytes | Event | None]:
        """Return whose line this is, and the text or event that it completes, if it does."""
        rank, kind, text = _frame(line)
        if rank is None:
            return None, line
        if kind == PIECE:
            self._pieces.setdefault(rank, []).append(text)
            return rank, None
        if kind == LINE:
            return rank, b"".join((*self._pieces.pop(rank, ()), text))
        try:
            return rank, Event(rank=rank, fields=json.loads(text))
        except ValueError:  # cut off, where the stream ended in the middle of it
            return None, line


def _frame(line: bytes) -> tuple[int | None, bytes, bytes]:
    """Return (rank, kind, text) of a frame; the rank is None for a line that is no frame."""
    if not line.startswith(FRAME):
        return None, b"", line
    digits = len(line) - len(line[1:].lstrip(b"0123456789"))
    kind = line[digits : digits + 1]
    if digits < 2 or kind not in (LINE, PIECE, EVENT):
        return None, b"", line
    return int(line[1:digits]), kind, line[digits + 1 :]
