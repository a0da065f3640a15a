"""Follow what a container prints, over connections that may break, without losing or repeating a line."""

import struct
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress

import docker

from launcher.cluster.engine.containers import unix_time

_OVERLAP_S = 2
"""How far back the engine is asked again: time stamps of the two streams may be slightly out of order in the log."""


class LogCursor:
    """How far a log was followed: which of its newest lines were seen."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, bytes]] = deque()
        """The lines of the newest seconds: unix time, and the line with its time stamp."""
        self._newest = 0.0

    def follow(self, engine: docker.DockerClient, container_id: str) -> Iterator[bytes]:
        """Yield what the container prints, from where the last call ended until it, or the connection, ends."""
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
    """The SDK's pieces. A connection that breaks inside a piece's header ends them, as a break between two does."""
    with suppress(struct.error):
        yield from pieces
