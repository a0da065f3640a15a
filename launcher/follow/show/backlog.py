"""What waits to be printed, in order, while the reader of our output is slower than the job.

On a terminal the lines of ranks are skipped where too many wait: nobody can read them. Elsewhere (a pipe, a file)
nothing is: what memory shouldn't hold goes to a file. What the launcher itself says is never skipped.
"""

import tempfile
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

_MOST_LINES = 10_000
_MOST_BYTES = 1 << 20
_PORTION_BYTES = 8192
"""Printed at once. A slow terminal must not be kept from a note for long."""
_NOTE_WAITS_S = 0.2
"""How long a note waits for the lines before it; then these are skipped."""
_IN_MEMORY_BYTES = 4 << 20
_READ_BYTES = 1 << 16

Draw = Callable[[str, int, Sequence[bytes]], bytes]
"""Makes what is printed of a rank's lines: (node, rank, lines)."""
Skipped = Callable[[Mapping[str, int]], bytes]
"""Says how many lines of which nodes are not shown."""


class Backlog(Protocol):
    """A queue of what is to be printed. Its user sees to it that one thread at a time is in here."""

    @property
    def waits(self) -> bool:
        """Whether anything is in it."""

    def put_lines(self, node: str, rank: int, lines: Sequence[bytes], /) -> None:
        """Add lines of a rank."""

    def put_text(self, text: bytes, /, *, urgent_at: float | None = None) -> None:
        """Add what the launcher says itself.

        Args:
            urgent_at: when it was said, if it shouldn't wait for what is before it.
        """

    def take(self, now: float, /) -> bytes:
        """Return what is to be printed next; empty: nothing waits."""

    def clear(self) -> None:
        """Forget all of it."""


@dataclass(kw_only=True)
class _Lines:
    node: str
    rank: int
    lines: deque[bytes]


@dataclass(frozen=True, kw_only=True)
class _Text:
    text: bytes
    urgent_at: float | None


@dataclass(kw_only=True)
class _Gap:
    skipped: Counter[str] = field(default_factory=Counter)


class SkippingBacklog:
    """For a terminal: where too much waits, the oldest lines of ranks are skipped, and a line says so."""

    def __init__(self, draw: Draw, skipped: Skipped) -> None:
        self._draw = draw
        self._skipped = skipped
        self._items: deque[_Lines | _Text | _Gap] = deque()
        self._lines = 0
        self._bytes = 0
        self._urgent = 0
        """How many notes wait."""

    @property
    def waits(self) -> bool:
        """Whether anything is in it."""
        return bool(self._items)

    def put_lines(self, node: str, rank: int, lines: Sequence[bytes], /) -> None:
        """Add lines of a rank; if too much waits, skip the oldest."""
        if not lines:
            return
        self._items.append(_Lines(node=node, rank=rank, lines=deque(lines)))
        self._lines += len(lines)
        self._bytes += sum(map(len, lines))
        if self._lines > _MOST_LINES or self._bytes > _MOST_BYTES:
            self._skip(len(self._items), enough=lambda: self._lines <= _MOST_LINES and self._bytes <= _MOST_BYTES)

    def put_text(self, text: bytes, /, *, urgent_at: float | None = None) -> None:
        """Add what the launcher says itself."""
        self._items.append(_Text(text=text, urgent_at=urgent_at))
        self._urgent += urgent_at is not None

    def take(self, now: float, /) -> bytes:
        """Return a portion of what waits; a note that has waited for too long brings what is before it to an end."""
        late = self._urgent and [
            place
            for place, item in enumerate(self._items)
            if isinstance(item, _Text) and item.urgent_at is not None and now - item.urgent_at > _NOTE_WAITS_S
        ]
        if late:
            self._skip(late[-1], enough=lambda: False)
        portion = b""
        while self._items and len(portion) < _PORTION_BYTES:
            portion += self._next()
        return portion

    def clear(self) -> None:
        """Forget all of it."""
        self._items.clear()
        self._lines = self._bytes = self._urgent = 0

    def _next(self) -> bytes:
        item = self._items[0]
        if not isinstance(item, _Lines):
            self._items.popleft()
            if isinstance(item, _Gap):
                return self._skipped(item.skipped)
            self._urgent -= item.urgent_at is not None
            return item.text
        lines, size = [], 0
        while item.lines and size < _PORTION_BYTES:
            lines.append(item.lines.popleft())
            size += len(lines[-1])
        self._count_off(len(lines), size)
        if not item.lines:
            self._items.popleft()
        return self._draw(item.node, item.rank, lines)

    def _skip(self, end: int, *, enough: Callable[[], bool]) -> None:
        """Skip lines among the first `end` items, the oldest first, until it is enough."""
        kept: list[_Text | _Gap] = []
        for _ in range(end):
            if enough():
                break
            item = self._items.popleft()
            if isinstance(item, _Text):
                kept.append(item)
                continue
            if not kept or not isinstance(kept[-1], _Gap):
                kept.append(_Gap())
            gap = kept[-1]
            assert isinstance(gap, _Gap)
            if isinstance(item, _Gap):
                gap.skipped += item.skipped
                continue
            while item.lines and not enough():
                self._count_off(1, len(item.lines.popleft()))
                gap.skipped[item.node] += 1
            if item.lines:
                self._items.appendleft(item)
        self._items.extendleft(reversed(kept))

    def _count_off(self, lines: int, size: int) -> None:
        self._lines -= lines
        self._bytes -= size


class SpillingBacklog:
    """For pipes and files: all of it is printed; what memory shouldn't hold waits in a file without a name."""

    def __init__(self, draw: Draw, skipped: Skipped, folder: Path | None) -> None:
        """Args:
        folder: where the file is made; None: where the system keeps temporary files.
        """
        self._draw = draw
        self._skipped = skipped
        self._folder = folder
        self._in_memory: deque[bytes] = deque()
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._read = self._written = 0
        """How far the file was."""
        self._refused: Counter[str] = Counter()
        """Lines that the file had no room for, since it was last empty."""
        self._texts: list[bytes] = []
        """What the launcher said itself in that time."""

    @property
    def waits(self) -> bool:
        """Whether anything is in it."""
        return bool(self._in_memory or self._read < self._written or self._refused or self._texts)

    def put_lines(self, node: str, rank: int, lines: Sequence[bytes], /) -> None:
        """Add lines of a rank."""
        if self._refused or not self._kept(self._draw(node, rank, lines)):
            self._refused[node] += len(lines)

    def put_text(self, text: bytes, /, *, urgent_at: float | None = None) -> None:  # noqa: ARG002 - all in order
        """Add what the launcher says itself."""
        if self._refused or not self._kept(text):
            self._texts.append(text)

    def take(self, _now: float, /) -> bytes:
        """Return a portion of what waits."""
        if self._in_memory:
            portion = self._in_memory.popleft()
            self._bytes -= len(portion)
            return portion
        if self._file and self._read < self._written:
            return self._from_file(self._file)
        rest = (self._skipped(self._refused) if self._refused else b"") + b"".join(self._texts)
        self._refused.clear()
        self._texts.clear()
        return rest

    def clear(self) -> None:
        """Forget all of it."""
        self._in_memory.clear()
        self._refused.clear()
        self._texts.clear()
        self._bytes = self._read = self._written = 0

    def _kept(self, data: bytes) -> bool:
        if self._read == self._written and self._bytes + len(data) <= _IN_MEMORY_BYTES:
            self._in_memory.append(data)
            self._bytes += len(data)
            return True
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 - until we end
            self._file.seek(self._written)
            done = 0
            while done < len(data):
                done += self._file.write(data[done:])
        except OSError:
            return False
        self._written += done
        return True

    def _from_file(self, file: IO[bytes]) -> bytes:
        try:
            file.seek(self._read)
            portion = file.read(min(_READ_BYTES, self._written - self._read))
        except OSError:
            portion = b""
        self._read = self._read + len(portion) if portion else self._written
        if self._read == self._written:
            self._read = self._written = 0
            file.truncate(0)
        return portion
