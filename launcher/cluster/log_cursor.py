"""Follows what a container prints, over connections that may break, without losing or repeating a line."""

import struct
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress

import docker

from launcher.cluster.containers import unix_time

_OVERLAP_S = 2
"""So far back the engine tells again: stamps of the two streams may stand in the log a little out of order."""


class LogCursor:
    """Where the following is: which of the newest lines were seen."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, bytes]] = deque()
        """Unix time, and the line with its stamp, of the newest seconds."""
        self._newest = 0.0

    def follow(self, engine: docker.DockerClient, container_id: str) -> Iterator[bytes]:
        """Yield what it prints, from where the last call ended to the container's end (or the connection's)."""
        again = Counter(line for _, line in self._seen)
        wanted = {"since": int(self._newest) - _OVERLAP_S} if self._seen else {}
        pieces = engine.api.logs(
            container_id, stdout=True, stderr=True, stream=True, follow=True, timestamps=True, **wanted
        )
        for piece in _whole(pieces):
            stamp, _, text = piece.partition(b" ")
            if again[piece] > 0:
                again[piece] -= 1
            else:
                self._note(unix_time(stamp.decode()), piece)
                yield text

    def _note(self, at: float, piece: bytes) -> None:
        self._newest = max(self._newest, at)
        self._seen.append((at, piece))
        while self._seen[0][0] < int(self._newest) - _OVERLAP_S:
            self._seen.popleft()


def _whole(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The SDK's pieces; a connection that breaks within the head of one ends them, as one between two does."""
    with suppress(struct.error):
        yield from pieces
