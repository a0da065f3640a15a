"""What training and evaluation need from a data set, however its images are stored."""

from collections.abc import Iterator
from typing import Protocol

from torch import Tensor

from trainer.data.batches.sampling import Epoch

Batch = tuple[Tensor, Tensor]
"""Normalized images, float32 (B, C, H, W), and labels, int64 (B,), on the device.

Valid until the next one is requested: its memory is reused.
"""


class TrainingImages(Protocol):
    """Images for training, in random order."""

    def __len__(self) -> int:
        """Return the number of images, for all ranks together."""

    def epoch(self, epoch: Epoch) -> Iterator[Batch]:
        """Yield the batches of one rank's forward/backward passes: `plan.accumulate` for each optimizer step."""

    def example(self, count: int) -> Batch:
        """Return any `count` of the images, for trials."""


class EvaluationImages(Protocol):
    """Images for evaluation, in a fixed order."""

    def __len__(self) -> int:
        """Return the number of images, for all ranks together."""

    def share(self, rank: int, world_size: int, count: int) -> Iterator[Batch]:
        """Yield every `world_size`-th of the first `count` images, from the `rank`-th on: each counts once."""
