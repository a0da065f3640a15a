"""Batches on the device from images that worker processes decode, prepared while the previous step computes."""

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
"""Far more than a chunk takes: a worker still busy with one this long after anyone wanted it is stuck, and killed."""
KILL_SECONDS = 15.0
"""Torch's loader checks every 5 s whether a worker lives. A killed one that hangs in the kernel is left there."""
REPORT_SECONDS = 2.0
"""From a worker's end until its server has reported it; usually much less, but not on a busy machine."""


class Feed:
    """Worker processes, kept from one pass over the images to the next, whose work becomes batches here."""

    def __init__(self, dataset: ImageDataset, normalize: Normalize, *, say: Callable[[str], None]) -> None:
        """`say`: receives a line for each unreadable file, once."""
        self._dataset, self._normalize, self._say = dataset, normalize, say
        self._tasks = _Tasks()
        self._loader: DataLoader[Decoded] | None = None
        self._iterator: Any = None
        self._processes: list[Any] = []
        self._broken: set[str] = set()
        device = normalize.device
        self._stream = _side_stream(device) if device.type == "cuda" else None

    def batches(self, chunks: Iterable[Chunk], workers: int) -> Generator[Batch]:
        """Yield the batches that `chunks` make up; with 0 workers, the caller itself reads on demand.

        Raises:
            UserError: exit code 1 if a worker dies, 2 if too many images are unreadable.
        """
        if workers == 0:
            yield from self._by_itself(chunks)
            return
        filling: _Filling | None = None
        try:
            filling = _Filling(self, self._start(chunks, workers))
            yield from filling.batches()
        except Exception as error:
            raise self._explained(error) from error
        finally:
            if filling is None or not self._ended(filling):
                self.close()  # workers still have chunks that nobody wants

    def _ended(self, filling: "_Filling") -> bool:
        """End the thread; return whether it had filled everything, so that the workers have nothing left to do."""
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
                raise self._explained(error) from error
            if chunk.ends_batch:
                yield buffer[: chunk.batch], torch.tensor(labels).to(self._normalize.device)
                labels = []

    def _start(self, chunks: Iterable[Chunk], workers: int) -> Iterator[Decoded]:
        self._tasks.chunks = chunks
        if self._stream is not None:  # for the tensors of `normalize`, made on the trainer's stream
            self._stream.wait_stream(torch.cuda.current_stream(self._normalize.device))
        if self._loader is None or self._loader.num_workers != workers:
            self.close()
            start_server()
            self._loader = self._new_loader(workers)
            atexit.register(self.close)  # before multiprocessing's own, which waits for workers forever
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="This DataLoader will create")  # as in _new_loader
            self._iterator = iter(self._loader)
        self._processes = list(self._iterator._workers)
        iterator: Iterator[Decoded] = self._iterator
        return iterator

    def _new_loader(self, workers: int) -> DataLoader[Decoded]:
        with warnings.catch_warnings():
            # Torch finds more workers than cores excessive; the trials find out whether they are.
            warnings.filterwarnings("ignore", message="This DataLoader will create")
            return DataLoader(
                self._dataset,  # type: ignore[arg-type]  # has no length: the sampler decides what is read
                sampler=self._tasks,
                batch_size=None,
                num_workers=workers,
                collate_fn=_as_it_is,  # type: ignore[arg-type]  # there is no list, as nothing is collated
                pin_memory=self._stream is not None,
                prefetch_factor=QUEUED_PER_WORKER,
                persistent_workers=True,
                multiprocessing_context="forkserver",
                worker_init_fn=prepare_worker,
                generator=torch.Generator(),  # the global one's draws are for training, however often workers start
            )

    def close(self) -> None:
        """End the workers; the next pass starts new ones."""
        if self._loader is None:
            return
        atexit.unregister(self.close)
        if self._iterator is not None:
            self._iterator._shutdown_workers()  # what the loader does when it is garbage-collected, but at once
        self._loader = self._iterator = None
        self._kill()  # the ones that hang, for instance on a dead file server
        for process in self._processes:
            process.join(KILL_SECONDS)
        self._processes = []

    def fill(self, buffer: Tensor, decoded: Decoded) -> list[int]:
        """Put a chunk's images, normalized, in their places in a batch; return their labels."""
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

    def fill_all(self, decoded: Iterable[Decoded], handover: Handover) -> None:
        """Fill one buffer after the other, on a stream of its own if there is a GPU."""
        labels: list[int] = []
        buffer: Tensor | None = None
        for part in decoded:
            with torch.cuda.stream(self._stream):  # no effect if that is None
                if buffer is None:
                    buffer = handover.free_buffer(part.chunk.batch, self._normalize, self._stream)
                if buffer is None or handover.ended:
                    return
                labels += self.fill(buffer, part)
                if part.chunk.ends_batch:
                    handover.ready(
                        buffer, part.chunk.batch, torch.tensor(labels).to(self._normalize.device), self._stream
                    )
                    buffer, labels = None, []
        handover.finish()

    def _explained(self, error: Exception) -> UserError:
        """Return in one line what went wrong with the workers."""
        if isinstance(error, UserError):
            return error
        text = str(error).strip() or type(error).__name__
        if isinstance(error, UnreadableError):
            return UserError(
                text.splitlines()[-1].removeprefix("trainer.data.streaming.decode.UnreadableError: "), exit_code=2
            )
        if self._processes and isinstance(error, OSError | EOFError):
            # A worker delivers its queue itself, so a killed one is missed before its end is reported.
            connection.wait([process.sentinel for process in self._processes], REPORT_SECONDS)
        ended = [process.exitcode for process in self._processes if process.exitcode]
        if not ended:
            return UserError(f"reading images failed: {text.splitlines()[-1]} (--debug shows where)", exit_code=1)
        how = f"by {signal.Signals(-ended[0]).name}" if ended[0] < 0 else f"with exit code {ended[0]}"
        return UserError(
            f"a worker process that reads images was ended {how}, most often because memory, or shared "
            "memory (df -h /dev/shm), ran out; make room or use fewer --workers",
            exit_code=1,
        )


class _Tasks(Sampler[Chunk]):
    """The chunks for the loader's workers, in order; a new list for each pass."""

    def __init__(self) -> None:
        self.chunks: Iterable[Chunk] = ()

    def __iter__(self) -> Iterator[Chunk]:
        return iter(self.chunks)


class _Filling:
    """The thread that fills buffers."""

    def __init__(self, feed: Feed, decoded: Iterator[Decoded]) -> None:
        self._handover = Handover()
        self._thread = threading.Thread(target=self._run, args=(feed, decoded), name="images", daemon=True)
        self._thread.start()

    def _run(self, feed: Feed, decoded: Iterator[Decoded]) -> None:
        try:
            feed.fill_all(decoded, self._handover)
        except Exception as error:  # raised again where batches are requested
            self._handover.fail(error)

    def batches(self) -> Iterator[Batch]:
        """Yield the batches that it has filled."""
        return self._handover.batches()

    def end(self, seconds: float) -> bool:
        """End the thread; return whether it ended within this time."""
        self._handover.end()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def finished(self) -> bool:
        """Whether it had filled everything."""
        return self._handover.finished


@functools.cache
def _side_stream(device: torch.device) -> Any:
    """Return one stream for all: freed memory is reused on the same stream only."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _as_it_is(decoded: Decoded) -> Decoded:
    return decoded
