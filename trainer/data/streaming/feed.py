"""Batches on the device from images that worker processes decode, made ready while the step before computes."""

import atexit
import functools
import signal
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from multiprocessing import connection
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from trainer.data.batches.normalize import Normalize
from trainer.data.batches.protocols import Batch
from trainer.data.streaming.decode import Chunk, Decoded, ImageDataset, UnreadableError
from trainer.data.streaming.gpu_decode import on_gpu
from trainer.data.streaming.handover import Handover
from trainer.data.streaming.worker_process import prepare_worker, start_server
from trainer.data.streaming.worker_tuning import QUEUED_PER_WORKER
from trainer.errors import UserError

GRACE_SECONDS = 5.0
"""What a chunk takes at most, by far; a worker that is still at one when nobody wants it is stuck, and killed."""
KILL_SECONDS = 15.0
"""Torch's loader looks every 5 s whether a worker lives. A killed one that hangs in the kernel is left there."""
REPORT_SECONDS = 2.0
"""From a worker's end until its server has told of it; much less, but on a machine that has much to do."""


class Feed:
    """Worker processes, kept from one pass over images to the next, and what makes batches of their work."""

    def __init__(self, dataset: ImageDataset, normalize: Normalize, *, say: Callable[[str], None]) -> None:
        """`say`: told of each unreadable file, once."""
        self._dataset, self._normalize, self._say = dataset, normalize, say
        self._tasks = _Tasks()
        self._loader: DataLoader[Decoded] | None = None
        self._iterator: Any = None
        self._processes: list[Any] = []
        self._broken: set[str] = set()
        device = normalize.device
        self._stream = _side_stream(device) if device.type == "cuda" else None

    def batches(self, chunks: Iterable[Chunk], workers: int) -> Generator[Batch]:
        """The batches that `chunks` make up; 0 workers: read by the caller itself, when it asks.

        Raises UserError where a worker dies, or too many images are unreadable.
        """
        if workers == 0:
            yield from self._by_itself(chunks)
            return
        filling: _Filling | None = None
        try:
            filling = _Filling(self, self._start(chunks, workers))
            yield from filling.batches()
        except Exception as error:
            raise self._told(error) from error
        finally:
            if filling is None or not self._ended(filling):
                self.close()  # workers still have what nobody wants

    def _ended(self, filling: "_Filling") -> bool:
        """Ends the thread; returns whether it had filled everything, so that the workers have nothing more to do."""
        if not filling.end(GRACE_SECONDS):
            self._kill()
            filling.end(KILL_SECONDS)
        return filling.finished

    def _kill(self) -> None:
        for process in self._processes:
            if process.is_alive():
                process.kill()

    def _by_itself(self, chunks: Iterable[Chunk]) -> Iterator[Batch]:
        buffer = torch.empty(0)
        labels: list[int] = []
        for chunk in chunks:
            if len(buffer) < chunk.batch:
                buffer = self._normalize.buffer(chunk.batch)
            try:
                labels += self.fill(buffer, self._dataset[chunk])
            except UnreadableError as error:
                raise self._told(error) from error
            if chunk.ends_batch:
                yield buffer[: chunk.batch], torch.tensor(labels).to(self._normalize.device)
                labels = []

    def _start(self, chunks: Iterable[Chunk], workers: int) -> Iterator[Decoded]:
        self._tasks.chunks = chunks
        if self._stream is not None:  # for what `normalize` was made of, on the stream that is the trainer's
            self._stream.wait_stream(torch.cuda.current_stream(self._normalize.device))
        if self._loader is None or self._loader.num_workers != workers:
            self.close()
            start_server()
            self._loader = self._made(workers)
            atexit.register(self.close)  # before multiprocessing's own, which waits for workers for ever
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="This DataLoader will create")  # as in _made
            self._iterator = iter(self._loader)
        self._processes = list(self._iterator._workers)
        iterator: Iterator[Decoded] = self._iterator
        return iterator

    def _made(self, workers: int) -> DataLoader[Decoded]:
        with warnings.catch_warnings():
            # Torch finds more workers than cores excessive; whether they are is what is found out by trying.
            warnings.filterwarnings("ignore", message="This DataLoader will create")
            return DataLoader(
                self._dataset,  # type: ignore[arg-type]  # has no length: what is read is the sampler's affair
                sampler=self._tasks,
                batch_size=None,
                num_workers=workers,
                collate_fn=_as_it_is,  # type: ignore[arg-type]  # what is not collated is no list
                pin_memory=self._stream is not None,
                prefetch_factor=QUEUED_PER_WORKER,
                persistent_workers=True,
                multiprocessing_context="forkserver",
                worker_init_fn=prepare_worker,
                generator=torch.Generator(),  # the global one's draws are the training's, however often workers start
            )

    def close(self) -> None:
        """Ends the workers; the next pass starts others."""
        if self._loader is None:
            return
        atexit.unregister(self.close)
        if self._iterator is not None:
            self._iterator._shutdown_workers()  # what the loader does when it is collected, but at once
        self._loader = self._iterator = None
        self._kill()  # those that hang, on a dead file server for instance
        for process in self._processes:
            process.join(KILL_SECONDS)
        self._processes = []

    def fill(self, buffer: Tensor, decoded: Decoded) -> list[int]:
        """Puts a chunk's images, normalized, in their places of a batch; returns their labels."""
        if decoded.raw is not None:
            decoded = on_gpu(decoded, self._dataset, self._normalize.device)
        for line in decoded.broken:
            if line not in self._broken:
                self._broken.add(line)
                shown = "another image takes its place" if decoded.chunk.crops else "it counts as plain grey"
                self._say(f"warning: {line}; {shown}")
        pixels = decoded.pixels.to(self._normalize.device, non_blocking=True).permute(0, 3, 1, 2)
        place = decoded.chunk.place
        self._normalize.into(buffer[place : place + len(pixels)], pixels)
        return decoded.labels

    def fill_all(self, decoded: Iterable[Decoded], given: Handover) -> None:
        """Fills one buffer after the other; on a stream of its own where there is a GPU."""
        labels: list[int] = []
        buffer: Tensor | None = None
        for part in decoded:
            with torch.cuda.stream(self._stream):  # without effect where that is None
                if buffer is None:
                    buffer = given.free_buffer(part.chunk.batch, self._normalize, self._stream)
                if buffer is None or given.ended:
                    return
                labels += self.fill(buffer, part)
                if part.chunk.ends_batch:
                    given.ready(buffer, part.chunk.batch, torch.tensor(labels).to(self._normalize.device), self._stream)
                    buffer, labels = None, []
        given.finish()

    def _told(self, error: Exception) -> UserError:
        """In one line what went wrong with the workers."""
        if isinstance(error, UserError):
            return error
        text = str(error).strip() or type(error).__name__
        if isinstance(error, UnreadableError):
            return UserError(
                text.splitlines()[-1].removeprefix("trainer.data.streaming.decode.UnreadableError: "), exit_code=2
            )
        if self._processes and isinstance(error, OSError | EOFError):
            # A worker hands over itself what is queued: one that was killed is missed before its end is reported.
            connection.wait([process.sentinel for process in self._processes], REPORT_SECONDS)
        ended = [process.exitcode for process in self._processes if process.exitcode]
        if not ended:
            return UserError(f"reading images failed: {text.splitlines()[-1]} (--debug shows where)", exit_code=1)
        how = f"by {signal.Signals(-ended[0]).name}" if ended[0] < 0 else f"with exit code {ended[0]}"
        return UserError(
            f"a worker process that reads images was ended {how}, most often for want of memory, or of shared "
            "memory (df -h /dev/shm); make room or use fewer --workers",
            exit_code=1,
        )


class _Tasks(Sampler[Chunk]):
    """What the loader's workers are given, in order; another list for each pass."""

    def __init__(self) -> None:
        self.chunks: Iterable[Chunk] = ()

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self.chunks)


class _Filling:
    """The thread that fills buffers."""

    def __init__(self, feed: Feed, decoded: Iterator[Decoded]) -> None:
        self._given = Handover()
        self._thread = threading.Thread(target=self._run, args=(feed, decoded), name="images", daemon=True)
        self._thread.start()

    def _run(self, feed: Feed, decoded: Iterator[Decoded]) -> None:
        try:
            feed.fill_all(decoded, self._given)
        except Exception as error:  # raised again where batches are asked for
            self._given.fail(error)

    def batches(self) -> Iterator[Batch]:
        """What it has filled."""
        return self._given.batches()

    def end(self, seconds: float) -> bool:
        """Ends the thread; returns whether it did within so long."""
        self._given.end()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def finished(self) -> bool:
        """Whether it had filled everything."""
        return self._given.finished


@functools.cache
def _side_stream(device: torch.device) -> Any:
    """One for all: memory that is freed is used again on the same stream only."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _as_it_is(decoded: Decoded) -> Decoded:
    return decoded
