"""What training and evaluation ask of a data set, however its images are kept."""

from collections.abc import Iterator
from typing import Protocol

from torch import Tensor

from trainer.data.batches.sampling import Epoch

Batch = tuple[Tensor, Tensor]
"""Normalized images, float32 (B, C, H, W), and labels, int64 (B,), on the device.

Good until the next one is asked for: memory is used again.
"""


class TrainingImages(Protocol):
    """Images for training, in random order."""

    def __len__(self) -> int:
        """How many there are, for all ranks together."""

    def epoch(self, epoch: Epoch) -> Iterator[Batch]:
        """The batches of one rank's forward/backward passes: `plan.accumulate` for each optimizer step."""

    def example(self, count: int) -> Batch:
        """Any `count` of the images, to try something on."""


class EvaluationImages(Protocol):
    """Images for evaluation, in a fixed order."""

    def __len__(self) -> int:
        """How many there are, for all ranks together."""

    def share(self, rank: int, world_size: int, count: int) -> Iterator[Batch]:
        """Every `world_size`-th of the first `count` images, from the `rank`-th on: each counts once."""
