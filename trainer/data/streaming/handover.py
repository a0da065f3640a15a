"""Buffers that go back and forth between the thread that fills them and the one that trains."""

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
        """The trainer wants no more."""
        self.finished = False
        """Everything has been filled."""
        self._free: queue.Queue[tuple[Tensor, Any] | None] = queue.Queue()
        self._ready: queue.Queue[Any] = queue.Queue()
        self._allocated = 0

    def free_buffer(self, count: int, normalize: Normalize, stream: Any) -> Tensor | None:
        """Wait for room for `count` images and return it; None if no more is wanted.

        Call it with `stream` as the current one: memory from another stream's pool may still be in use there.
        """
        if self._allocated < BUFFERS:
            self._allocated += 1
            return normalize.buffer(count)
        returned = self._free.get()
        if returned is None:
            return None
        buffer, used = returned
        if stream is not None:
            stream.wait_event(used)  # the step that reads it may not have run yet
        return buffer if len(buffer) >= count else normalize.buffer(count)

    def ready(self, buffer: Tensor, count: int, labels: Tensor, stream: Any) -> None:
        """Hand over a full buffer."""
        self._ready.put((buffer, count, labels, stream.record_event() if stream is not None else None))

    def finish(self) -> None:
        """Report that there are no more."""
        self.finished = True
        self._ready.put(None)

    def fail(self, error: Exception) -> None:
        """Report why there are no more."""
        self._ready.put(error)

    def end(self) -> None:
        """Report that no more is wanted."""
        self.ended = True
        self._free.put(None)

    def batches(self) -> Iterator[Batch]:
        """Yield full buffers, each valid until the next is requested."""
        while (item := self._ready.get()) is not None:
            if isinstance(item, Exception):
                raise item
            buffer, count, labels, filled = item
            if filled is not None:
                current = torch.cuda.current_stream(buffer.device)
                current.wait_event(filled)
                for each in (buffer, labels):  # so that neither is reused before the work queued here has read it
                    each.record_stream(current)
            yield buffer[:count], labels
            used = torch.cuda.current_stream(buffer.device).record_event() if filled is not None else None
            self._free.put((buffer, used))
