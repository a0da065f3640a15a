"""A node's log in the job's folder: each line behind its author, `[0] …` for rank 0, `[agent] …` for torchrun."""

import itertools
from collections.abc import Iterator
from pathlib import Path

from launcher.follow.frames import Lines

_AT_ONCE = 1000


def entry(lines: Lines) -> bytes:
    """Return what the log holds of these lines."""
    author = b"[agent] " if lines.rank is None else b"[%d] " % lines.rank
    return author + (b"\n" + author).join(lines.texts) + b"\n"


def read(log: Path) -> Iterator[Lines]:
    """Yield what is in a log, the agent's lines included; lines of the same author in one, up to 1000 of them."""
    with log.open("rb") as file:
        for author, lines in itertools.groupby(map(_parted, file), key=lambda part: part[0]):
            while texts := [text for _, text in itertools.islice(lines, _AT_ONCE)]:
                yield Lines(rank=author, texts=texts)


def _parted(line: bytes) -> tuple[int | None, bytes]:
    author, _, text = line.removesuffix(b"\n").removeprefix(b"[").partition(b"] ")
    return (int(author) if author.isdigit() else None), text
