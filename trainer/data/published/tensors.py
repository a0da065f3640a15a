"""The data sets as tensors that stay in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from trainer.data.published.fetch import obtain
from trainer.data.published.formats import CLASSES

SYNTHETIC_TRAIN, SYNTHETIC_TEST, SYNTHETIC_SIZE = 4096, 1024, 28
"""Images for training and testing, and their edge in pixels."""
SYNTHETIC_NOISE, SYNTHETIC_SHIFT = 0.8, 8
"""Standard deviation of the noise, the image's own contrast being about 1, and the largest shift in pixels."""


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Images and labels; mean and standard deviation of the training images, per channel, from 0 to 1."""

    name: str
    train_images: Tensor
    """uint8 (N, C, H, W)."""
    train_labels: Tensor
    """int64 (N,)."""
    test_images: Tensor
    test_labels: Tensor
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


def load(name: str, *, data_dir: Path, own_copy: Path | None, seed: int, say: Callable[[str], None]) -> Dataset:
    """Return the data set `name` from `data_dir`, verified; fetch it first if `fetch.ensure` hasn't.

    `own_copy` is the user's own copy, file or folder; `seed` matters to the synthetic set only.

    Raises:
        UserError: exit code 2, as `fetch.ensure`.
    """
    if name == "synthetic":
        return synthetic(seed=seed)
    stored = obtain(name, data_dir=data_dir, own_copy=own_copy, say=say)
    return Dataset(
        name=name,
        train_images=torch.from_numpy(stored.arrays.train_images),
        train_labels=torch.from_numpy(stored.arrays.train_labels),
        test_images=torch.from_numpy(stored.arrays.test_images),
        test_labels=torch.from_numpy(stored.arrays.test_labels),
        classes=CLASSES,
        mean=stored.mean,
        std=stored.std,
    )


def synthetic(*, seed: int) -> Dataset:
    """Make images of ten smooth random patterns, shifted and noisy: (4096 + 1024, 1, 28, 28), the same for a `seed`."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(CLASSES, 1, 7, 7, generator=generator)
    patterns = interpolate(coarse, size=(SYNTHETIC_SIZE, SYNTHETIC_SIZE), mode="bicubic")[:, 0]

    def draw(count: int) -> tuple[Tensor, Tensor]:
        labels = torch.randint(CLASSES, (count,), generator=generator)
        shifts = torch.randint(-SYNTHETIC_SHIFT, SYNTHETIC_SHIFT + 1, (2, count, 1), generator=generator)
        rows, columns = (torch.arange(SYNTHETIC_SIZE) + shifts) % SYNTHETIC_SIZE
        shifted = patterns[labels[:, None, None], rows[:, :, None], columns[:, None, :]]
        noisy = shifted + SYNTHETIC_NOISE * torch.randn(shifted.shape, generator=generator)
        return (noisy * 48 + 128).clamp(0, 255).to(torch.uint8)[:, None], labels

    train_images, train_labels = draw(SYNTHETIC_TRAIN)
    test_images, test_labels = draw(SYNTHETIC_TEST)
    pixels = train_images.double() / 255
    return Dataset(
        name="synthetic",
        train_images=train_images,
        train_labels=train_labels,
        test_images=test_images,
        test_labels=test_labels,
        classes=CLASSES,
        mean=(float(pixels.mean()),),
        std=(float(pixels.std(correction=0)),),
    )
