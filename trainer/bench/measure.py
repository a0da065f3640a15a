"""How fast each way delivers images; for `bench-input` and the benchmarks."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from trainer.config.scaling import BatchPlan
from trainer.data.batches.augment import Augmentation
from trainer.data.batches.normalize import Normalize
from trainer.data.batches.protocols import TrainingImages
from trainer.data.batches.resident import Resident
from trainer.data.batches.sampling import Epoch
from trainer.data.published.tensors import Dataset as Arrays
from trainer.data.streaming import image_folder
from trainer.data.streaming.decode import ImageDataset
from trainer.data.streaming.streamed import CHUNK, Choice, StreamedTraining
from trainer.data.streaming.worker_tuning import QUEUED_PER_WORKER
from trainer.distributed import cores

SHIFT = 2
"""Pixels of padding for random crops of small images."""
TUNING_SECONDS = 60.0
"""After this time, the tuning of a measured way is left as it is."""


class Source(Protocol):
    """One way of feeding training."""

    def rate(self, seconds: float) -> float:
        """Return images per second, measured for about this time."""

    def close(self) -> None:
        """End what it has started."""


class Naive:
    """The tutorials' way: a torchvision data set, PIL transforms of one image at a time, with or without workers."""

    def __init__(self, dataset: Dataset[tuple[Tensor, int]], batch: int, *, workers: int = 0) -> None:
        self._loader = DataLoader(
            dataset,
            batch_size=batch,
            shuffle=True,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=workers > 0 and torch.cuda.is_available(),
        )
        self._skipped = 1 + 2 * workers  # each worker has two batches ready while nobody requests any
        self._batches = self._endless()

    def rate(self, seconds: float) -> float:
        """Return images per second."""
        return _rate(self._batches, seconds, skipped=self._skipped)

    def close(self) -> None:
        """Release the loader, which ends its workers."""
        self._batches.close()

    def _endless(self) -> Generator[Any]:
        while True:
            yield from self._loader


class Endless:
    """Epoch after epoch of training images, as one rank alone."""

    def __init__(self, train: TrainingImages, batch: int, *, kept: int = 0) -> None:
        """`kept`: batches that may be ready while nobody requests any; a measurement skips them."""
        self._train, self._skipped = train, 1 + kept
        self._plan = BatchPlan(world_size=1, accumulate=1, micro_batch=batch)
        self._batches = self._endless()

    def rate(self, seconds: float) -> float:
        """Return images per second."""
        return _rate(self._batches, seconds, skipped=self._skipped)

    def waiting(self, *, step: float, steps: int) -> float:
        """Return the share (0..1) of time spent waiting, if each step takes `step` seconds without using the CPU."""
        waited, since = 0.0, time.perf_counter()
        for number in range(-self._skipped, steps):
            if number == 0:
                waited, since = 0.0, time.perf_counter()
            requested = time.perf_counter()
            next(self._batches)
            waited += time.perf_counter() - requested
            time.sleep(step)
        return waited / (time.perf_counter() - since)

    def settle(self) -> None:
        """Let a streamed source find its number of workers."""
        assert isinstance(self._train, StreamedTraining)
        since = time.monotonic()
        while not self._train.settled and time.monotonic() - since < TUNING_SECONDS:
            next(self._batches)

    @property
    def workers(self) -> int:
        """Workers of a streamed source; 0 for others."""
        return self._train.workers if isinstance(self._train, StreamedTraining) else 0

    def close(self) -> None:
        """End its workers, if any."""
        self._batches.close()
        if isinstance(self._train, StreamedTraining):
            self._train.close()

    def _endless(self) -> Any:
        for number in itertools.count():
            yield from self._train.epoch(Epoch(plan=self._plan, rank=0, seed=0, number=number))


def naive_arrays(data: Arrays, *, batch: int, augmented: bool, workers: int = 0) -> Naive:
    """Return a data set in memory, read as torchvision's own classes do."""
    return Naive(_OneByOne(data, augmented=augmented), batch, workers=workers)


def naive_folder(root: Path, *, size: int, batch: int) -> Naive:
    """Return torchvision's ImageFolder with a random crop and flip."""
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    steps = [
        transforms.RandomCrop(size, pad_if_needed=True),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(image_folder.MEAN, image_folder.STD),
    ]
    return Naive(ImageFolder(str(root / "train"), transforms.Compose(steps)), batch)


def measure_resident(data: Arrays, *, batch: int, augmented: bool, device: torch.device) -> Endless:
    """Return a data set that lives on the device."""
    resident = Resident(
        data.train_images,
        data.train_labels,
        mean=data.mean,
        std=data.std,
        device=device,
        memory_format=torch.channels_last,
        augmentation=Augmentation(shift=SHIFT, flip="random") if augmented else None,
    )
    return Endless(resident, batch)


def measure_streamed(
    root: Path,
    *,
    workers: int | None,
    batch: int,
    size: int = 224,
    crop: str = "random",
    raw: bool = False,
    device: torch.device | None = None,
    report: Callable[[Choice], None] = lambda _: None,
) -> Endless:
    """Return a folder of images, with random crops and flips; `workers`: None = by trials; `raw`: decoded on a GPU."""
    device = device or torch.device("cpu")
    normalize = Normalize(
        mean=image_folder.MEAN,
        std=image_folder.STD,
        shape=(3, size, size),
        device=device,
        memory_format=torch.channels_last,
    )
    train = StreamedTraining(
        ImageDataset(files=image_folder.find(root).train, size=size, crop=crop, raw=raw),
        normalize,
        augmentation=Augmentation(flip="random"),
        seed=0,
        cores=cores.free_cores(),
        workers=workers,
        agree=lambda value: value,
        say=print,
        report=report,
    )
    most = max(workers or 0, 2 * cores.free_cores())
    return Endless(train, batch, kept=2 + -(-QUEUED_PER_WORKER * most * CHUNK // batch))


class _OneByOne(Dataset[tuple[Tensor, int]]):
    """What torchvision's FashionMNIST and CIFAR10 do for each image."""

    def __init__(self, data: Arrays, *, augmented: bool) -> None:
        from torchvision import transforms

        edge = data.train_images.shape[-1]
        moves = [transforms.RandomCrop(edge, padding=SHIFT), transforms.RandomHorizontalFlip()] if augmented else []
        normal = transforms.Normalize(data.mean, data.std)
        self._transform = transforms.Compose([*moves, transforms.ToTensor(), normal])
        pixels = data.train_images.permute(0, 2, 3, 1).contiguous()
        self._pixels = pixels.squeeze(-1).numpy()
        self._labels = data.train_labels

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        from PIL import Image

        image: Tensor = self._transform(Image.fromarray(self._pixels[number]))
        return image, int(self._labels[number])


def _rate(batches: Iterator[Any], seconds: float, *, skipped: int) -> float:
    for _ in range(skipped):
        next(batches)
    _wait_for_device()
    count, since = 0, time.perf_counter()
    while time.perf_counter() - since < seconds:
        count += len(next(batches)[1])
    _wait_for_device()
    return count / (time.perf_counter() - since)


def _wait_for_device() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
