"""Follow what a container prints, over connections that may break, without losing or repeating a line.

A line's place in the log counts, never its time stamp: a node's clock may be set back. The engine is asked for the last
lines of the log, more and more of them, until those come that were heard last; what follows them is new. A log that is
torn (after a full disk, say) can't be read past the tear from its beginning, but from its end it can.
"""

import re
import struct
from collections import deque
from collections.abc import Iterator, Sequence

import docker

_KEPT = 200
"""So many of the newest lines are remembered, to be found again in the log."""
_SIZES = (2 * _KEPT, 16 * _KEPT, 128 * _KEPT, None)
"""How many of the log's last lines are asked for, one after the other; None: all."""
_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) ")
_WORDS = 20
"""So many different lines of the engine's own are passed on."""


class _Log:
    """A container's log, as its engine gives it."""

    def __init__(self, engine: docker.DockerClient, container_id: str) -> None:
        self._engine = engine
        self._id = container_id

    def last(self, size: int | None, *, live: bool = False) -> Iterator[bytes]:
        """Yield the last `size` lines (None: all), as far as the engine can read them; `live`: then all that follow."""
        pieces = self._engine.api.logs(
            self._id,
            stdout=True,
            stderr=True,
            stream=True,
            timestamps=True,
            follow=live,
            tail="all" if size is None else size,
        )
        try:
            yield from pieces
        except struct.error as error:
            raise EOFError("the connection broke inside a piece's header") from error

    def newest(self) -> int | None:
        """Return the key of the newest line; None if there is none."""
        keys = [hash(piece) for piece in self.last(1) if _STAMP.match(piece)]
        return keys[-1] if keys else None

    def readable(self, size: int, newest: int) -> bool:
        """Return whether the engine reads the last `size` lines up to the one that was the newest."""
        keys = [hash(piece) for piece in self.last(size) if _STAMP.match(piece)]
        return len(keys) == size or newest in keys

    def has_all(self, size: int) -> bool:
        """Return whether the engine gives all of the last `size` lines.

        One that begins to read in the midst of a tear goes on somewhere behind it, and reaches the newest line too.
        """
        return sum(1 for piece in self.last(size) if _STAMP.match(piece)) == size


class _Search:
    """Looks in lines of the log for the place up to which it was heard."""

    def __init__(self, heard: Sequence[int], *, newest: int | None = None, begins_within: bool = False) -> None:
        """Args:
        heard: the lines that were heard last.
        newest: the line that must be among those looked at if the engine can read them all.
        begins_within: whether the lines looked at may begin in the midst of those heard.
        """
        self.found = not heard
        self.reaches_newest = False
        self.lines = 0
        """How many lines were looked at."""
        self._heard = list(heard)
        self._newest = newest
        self._begins_within = begins_within
        self._last: deque[int] = deque(maxlen=len(heard))

    def is_new(self, key: int) -> bool:
        """Look at the next line; return whether it comes after those heard."""
        self.lines += 1
        self.reaches_newest = self.reaches_newest or key == self._newest
        if self.found:
            return True
        self._last.append(key)
        if key == self._heard[-1] and (self._begins_within or len(self._last) == len(self._heard)):
            self.found = list(self._last) == self._heard[-len(self._last) :]
        return False


class LogCursor:
    """How far a log was followed: which of its newest lines were heard."""

    def __init__(self) -> None:
        self.torn = False
        """Whether lines are missing that the engine can't read any more."""
        self._heard: deque[int] = deque(maxlen=_KEPT)
        """The newest lines, each as a hash of its text and time stamp."""
        self._since_tear: int | None = None
        """How many lines the engine can read at the log's end, at least; None: the log is whole."""
        self._words: set[bytes] = set()

    def follow(self, engine: docker.DockerClient, container_id: str) -> Iterator[bytes]:
        """Yield what the container prints, from where the last call ended until it, or the connection, ends."""
        log = _Log(engine, container_id)
        if self._heard:
            yield from self._catch_up(log)
        size = self._sizes()[0] if self._heard else None
        search = _Search(self._heard, begins_within=self._since_tear is not None)
        for piece in log.last(size, live=True):
            yield from self._take(piece, search)
            if not search.found and search.lines == size:
                return  # so much was printed between the two questions: the next call catches up

    def rest(self, engine: docker.DockerClient, container_id: str) -> Iterator[bytes]:
        """Yield what a container that has ended printed behind a tear in its log."""
        log = _Log(engine, container_id)
        newest = log.newest()
        if newest is not None and (not self._heard or newest != self._heard[-1]):
            yield from self._catch_up(log)

    def _sizes(self) -> Sequence[int | None]:
        if self._since_tear is None or self._since_tear > 2 * _KEPT:
            return _SIZES
        few = max(1, self._since_tear)
        return (few, 8 * few, *_SIZES)

    def _catch_up(self, log: _Log) -> Iterator[bytes]:
        """Yield what was printed since the last call."""
        newest = log.newest() or log.newest()  # a second time: an answer may be empty because the connection broke
        if newest is None:  # somebody has emptied it
            self.torn = True
            self._heard.clear()
            return
        good = 1
        for size in self._sizes():
            search = _Search(self._heard, newest=newest, begins_within=self._since_tear is not None)
            for piece in log.last(size):
                yield from self._take(piece, search)
            if not search.reaches_newest and search.lines != size:  # fewer than there are
                yield from self._skip_tear(log, newest, good, size)
                return
            if search.found:
                return
            good = size or good
        # The lines that were heard last are no longer there: somebody has cut the file.
        yield from self._jump(log.last(None), tear=False)

    def _skip_tear(self, log: _Log, newest: int, good: int, bad: int | None) -> Iterator[bytes]:
        """Yield what the engine can read behind a tear, which is among the last `bad` lines, not the last `good`."""
        # Asked again, as it may be the connection that broke off: then this fails, and the next call catches up.
        if log.newest() is None or (bad is not None and log.readable(bad, newest)):
            return
        while bad is not None and bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if log.has_all(middle) else (good, middle)
        search = _Search(self._heard, begins_within=self._since_tear is not None)
        for piece in log.last(good):
            yield from self._take(piece, search)
        if not search.found:  # else we are behind the tear already
            yield from self._jump(log.last(good), tear=True)

    def _jump(self, pieces: Iterator[bytes], *, tear: bool) -> Iterator[bytes]:
        """Yield what was not heard of lines that don't follow those heard, because of a tear or a cut before them."""
        before, anywhere = set(self._heard), _Search(())
        for number, piece in enumerate(pieces):
            self.torn = True
            if tear and number == 0:
                self._since_tear = 0
            if hash(piece) not in before:
                yield from self._take(piece, anywhere)
            elif self._since_tear is not None:
                self._since_tear += 1

    def _take(self, piece: bytes, search: _Search) -> Iterator[bytes]:
        """Yield a line's text if it is new; a line without time stamp is a word of the engine's own, and passed on."""
        stamp = _STAMP.match(piece)
        if stamp is None:
            self.torn = True
            if piece not in self._words and len(self._words) < _WORDS:
                self._words.add(piece)
                yield piece if piece.endswith(b"\n") else piece + b"\n"
        elif search.is_new(hash(piece)):
            self._heard.append(hash(piece))
            if self._since_tear is not None:
                self._since_tear += 1
            yield piece[stamp.end() :]
