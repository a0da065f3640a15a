"""Images too many for memory: worker processes read, decode and crop them as they are needed."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.config.scaling import BatchPlan
from trainer.data.batches.augment import Augmentation, cut_out, draw
from trainer.data.batches.normalize import Normalize
from trainer.data.batches.protocols import Batch
from trainer.data.batches.sampling import Epoch, generator
from trainer.data.streaming.decode import Chunk, ImageDataset
from trainer.data.streaming.feed import Feed
from trainer.data.streaming.worker_tuning import Trial, Tuning

CHUNK = 16
"""Images in a worker's unit of work: some 20 ms, of which delivering them takes a hundredth, and few enough for all
workers to share a batch."""
TEST_BATCH = 128
"""Images per forward pass of an evaluation."""
Agree = Callable[[float], float]
"""Returns the largest of all ranks' values; a collective."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The number of workers chosen, and what it was chosen by."""

    workers: int
    rates: dict[int, float]
    """Images per second of all ranks together in the best trial of each number."""


def chunked(
    indices: Sequence[int], batch: int, crops: list[list[float]] | None = None, flips: list[bool] | None = None
) -> Iterator[Chunk]:
    """Cut images into batches, and batches into chunks; the last batch may be smaller."""
    for start in range(0, len(indices), batch):
        end = min(start + batch, len(indices))
        for first in range(start, end, CHUNK):
            part = slice(first, min(first + CHUNK, end))
            yield Chunk(
                indices=list(indices[part]),
                place=first - start,
                batch=end - start,
                crops=None if crops is None else crops[part],
                flips=None if flips is None else flips[part],
            )


class StreamedTraining:
    """Training images in random order, with a random crop and side for each."""

    def __init__(
        self,
        dataset: ImageDataset,
        normalize: Normalize,
        *,
        augmentation: Augmentation,
        seed: int,
        cores: int,
        workers: int | None,
        agree: Agree,
        say: Callable[[str], None],
        report: Callable[[Choice], None],
    ) -> None:
        """`cores`: free for this rank, the same number on all ranks; `workers`: None = found while training.

        `say` receives a line for each unreadable file, `report` the number of workers once it is chosen.
        """
        self._dataset, self._normalize = dataset, normalize
        self._augmentation, self._seed = augmentation, seed
        self._cores, self._fixed, self._agree, self._report = cores, workers, agree, report
        self._feed = Feed(dataset, normalize, say=say)
        self._tuning: Tuning | None = None
        first = generator("flips", seed)
        self._first_flips = torch.rand(len(dataset.files), generator=first) < 0.5

    def __len__(self) -> int:
        return len(self._dataset.files)

    @property
    def workers(self) -> int:
        """The number of workers, as far as it is known."""
        guess = self._cores if self._fixed is None else self._fixed
        return self._tuning.workers if self._tuning else guess

    @property
    def settled(self) -> bool:
        """Whether the number of workers is final."""
        return self._fixed is not None or (self._tuning is not None and self._tuning.settled)

    def close(self) -> None:
        """End the workers."""
        self._feed.close()

    def epoch(self, epoch: Epoch) -> Iterator[Batch]:
        """Yield the batches of one rank's passes. Each draw follows from the seed, the epoch and the place in it."""
        order, crops, flips, holes = self._draw(epoch)
        batch = epoch.plan.micro_batch
        position = 0
        for images, labels in self._tuned(order, crops, flips, epoch):
            if holes is not None:
                hole = holes[position : position + batch].to(images.device)
                cut_out(images, hole, self._augmentation.cutout)
            position += batch
            yield images, labels

    def example(self, count: int) -> Batch:
        """Return any `count` of the images, cropped at the margins only."""
        numbers = [number % len(self) for number in range(count)]
        feed = Feed(self._dataset, self._normalize, say=lambda _: None)
        batches = feed.batches(chunked(numbers, count), self.workers)
        try:
            images, labels = next(batches)
            return images.clone(), labels
        finally:
            batches.close()
            feed.close()

    def _draw(self, epoch: Epoch) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Return this rank's indices from the first step on, (n,), with crops (n, 4), flips (n,), cutouts' centres."""
        generator = epoch.generator()
        order = torch.randperm(len(self), generator=generator)
        crops = torch.rand(len(self), 4, generator=generator)
        drawn = draw(
            self._augmentation,
            order,
            size=(self._dataset.size, self._dataset.size),
            epoch=epoch.number,
            first_flips=self._first_flips,
            generator=generator,
        )
        flips = None if drawn.flipped is None else epoch.mine(drawn.flipped)
        holes = None if drawn.hole is None else epoch.mine(drawn.hole)
        return epoch.mine(order), epoch.mine(crops), flips, holes

    def _tuned(self, order: Tensor, crops: Tensor, flips: Tensor | None, epoch: Epoch) -> Iterator[Batch]:
        """Yield all batches, in trial after trial of a number of workers until one is chosen."""
        batch = epoch.plan.micro_batch
        tuning = self._tuning = self._tuning or self._start_tuning(epoch)
        first, end = 0, len(order)

        def chunks(first: int, end: int) -> Iterator[Chunk]:
            for start in range(first, end, batch):
                part = slice(start, min(start + batch, end))
                sides = None if flips is None else flips[part].tolist()
                yield from chunked(order[part].tolist(), batch, crops[part].tolist(), sides)

        while trial := tuning.trial((end - first) // batch):
            last = first + trial.batches * batch
            yield from self._trial_batches(trial, self._feed.batches(chunks(first, last), trial.workers), epoch)
            first = last
        if first < end:
            yield from self._feed.batches(chunks(first, end), tuning.workers)

    def _start_tuning(self, epoch: Epoch) -> Tuning:
        plan = epoch.plan
        on_cpu = float(self._normalize.device.type == "cpu")
        return Tuning(
            cores=self._cores,
            # On any rank: all have to try the same numbers, even if some compute on GPUs and others don't.
            competes=self._fixed is None and self._agree(on_cpu) > 0,
            chunks=-(-plan.micro_batch // CHUNK),
            epoch=epoch.steps(len(self)) * plan.accumulate,
            fixed=self._fixed,
        )

    def _trial_batches(self, trial: Trial, batches: Iterator[Batch], epoch: Epoch) -> Iterator[Batch]:
        """Yield a trial's batches, and note the result when the last measured one arrives.

        Not after the last batch: a caller that wants one epoch's batches never requests more.
        """
        assert self._tuning is not None
        since, waited, last = time.monotonic(), 0.0, trial.skipped + trial.measured
        for number in range(1, trial.batches + 1):
            since_request = time.monotonic()
            batch = next(batches)
            now = time.monotonic()
            if number > trial.skipped:
                waited += now - since_request
            if number == last:
                self._record(trial, now - since, waited, epoch.plan)
            if number == trial.skipped:
                since = now
            yield batch
        next(batches, None)  # lets it reach its end, so that its workers can continue

    def _record(self, trial: Trial, seconds: float, waited: float, plan: BatchPlan) -> None:
        tuning = self._tuning
        assert tuning is not None
        tuning.record(trial, seconds=self._agree(seconds), waited=self._agree(waited))
        if tuning.settled:
            per_batch = plan.micro_batch * plan.world_size
            rates = {workers: max(trials) * per_batch for workers, trials in tuning.rates.items()}
            self._report(Choice(workers=tuning.workers, rates=rates))


class StreamedTest:
    """The middles of test images, in a fixed order."""

    def __init__(
        self,
        dataset: ImageDataset,
        normalize: Normalize,
        *,
        workers: Callable[[], int],
        say: Callable[[str], None],
    ) -> None:
        """`workers`: how many an evaluation starts. It ends them, too: between evaluations they would only idle."""
        self._dataset, self._normalize, self._workers = dataset, normalize, workers
        self._say, self._reported = say, set[str]()

    def __len__(self) -> int:
        return len(self._dataset.files)

    def share(self, rank: int, world_size: int, count: int) -> Iterator[Batch]:
        """Yield every `world_size`-th of the first `count` images, from the `rank`-th on."""
        feed = Feed(self._dataset, self._normalize, say=self._say_once)
        try:
            yield from feed.batches(chunked(range(rank, count, world_size), TEST_BATCH), self._workers())
        finally:
            feed.close()

    def _say_once(self, line: str) -> None:
        if line not in self._reported:
            self._reported.add(line)
            self._say(line)
