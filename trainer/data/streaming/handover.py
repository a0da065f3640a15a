"""Buffers on their way between the thread that fills them and the one that trains."""

import queue
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from trainer.data.batches.normalize import Normalize
from trainer.data.batches.protocols import Batch

BUFFERS = 2
"""One batch is in use while the next is filled."""


class Handover:
    """Two queues: of empty buffers, and of full ones."""

    def __init__(self) -> None:
        self.ended = False
        """Nobody wants more."""
        self.finished = False
        """All has been filled."""
        self._free: queue.Queue[tuple[Tensor, Any] | None] = queue.Queue()
        self._ready: queue.Queue[Any] = queue.Queue()
        self._made = 0

    def free_buffer(self, count: int, normalize: Normalize, stream: Any) -> Tensor | None:
        """Room for `count` images, waited for; None where no more is wanted.

        To be called with `stream` as the current one: memory from another stream's pool may still be in use there.
        """
        if self._made < BUFFERS:
            self._made += 1
            return normalize.buffer(count)
        returned = self._free.get()
        if returned is None:
            return None
        buffer, used = returned
        if stream is not None:
            stream.wait_event(used)  # the step that reads it may not have run yet
        return buffer if len(buffer) >= count else normalize.buffer(count)

    def ready(self, buffer: Tensor, count: int, labels: Tensor, stream: Any) -> None:
        """Hands over a full buffer."""
        self._ready.put((buffer, count, labels, stream.record_event() if stream is not None else None))

    def finish(self) -> None:
        """There are no more."""
        self.finished = True
        self._ready.put(None)

    def fail(self, error: Exception) -> None:
        """There are no more, and why."""
        self._ready.put(error)

    def end(self) -> None:
        """No more is wanted."""
        self.ended = True
        self._free.put(None)

    def batches(self) -> Iterator[Batch]:
        """Full buffers, each good until the next is asked for."""
        while (item := self._ready.get()) is not None:
            if isinstance(item, Exception):
                raise item
            buffer, count, labels, filled = item
            if filled is not None:
                current = torch.cuda.current_stream(buffer.device)
                current.wait_event(filled)
                for each in (buffer, labels):  # not to be given to others before what is queued here has read it
                    each.record_stream(current)
            yield buffer[:count], labels
            used = torch.cuda.current_stream(buffer.device).record_event() if filled is not None else None
            self._free.put((buffer, used))
