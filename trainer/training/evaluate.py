"""Exact evaluation: every test image counts once, whatever the number of ranks."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainer.data.batches.protocols import Batch, EvaluationImages
from trainer.distributed.agreement import agree
from trainer.distributed.world import World, average_buffers
from trainer.model.precision import Precision

ROUND = 0.5
"""Seconds between two looks at whether a rank is to stop: each makes all ranks meet."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """Mean cross-entropy, and the fraction (0..1) of images classified correctly."""

    loss: float
    accuracy: float


@dataclass(frozen=True, kw_only=True)
class Broken:
    """An evaluation that all ranks have left together; what it had counted is worth nothing."""

    signal: int
    """What told some rank to stop."""


@torch.inference_mode()
def evaluate(
    model: nn.Module,
    data: EvaluationImages,
    world: World,
    precision: Precision,
    *,
    limit: int | None,
    augmentation: str = "none",
    stop: Callable[[], int] = lambda: 0,
) -> Score | Broken:
    """Score the plain (not wrapped) model on the first `limit` images; a collective.

    The images are dealt out to the ranks in turn, without padding, and the ranks' sums are added, so unequal shares
    have their proper weights.

    Args:
        model: the model, in training mode, to which it returns.
        data: the images.
        world: this rank among the others.
        precision: the numbers to compute with.
        limit: how many images; None: all.
        augmentation: none, or flip, which takes the mean of the logits of each image and its mirror image.
        stop: returns the signal that tells this rank to stop, 0 for none. One rank that has one is enough.
    """
    average_buffers(model, world)
    count = min(limit or len(data), len(data))
    sums = torch.zeros(2, dtype=torch.float64, device=world.device)
    batches = data.share(world.rank, world.world_size, count)
    model.eval()
    try:
        more = True
        while True:
            signal, anywhere = agree(world, [stop(), int(more)])
            if not anywhere:
                break
            if signal:
                return Broken(signal=signal)
            more = more and _go_on(batches, sums, model, precision, mirrored=augmentation == "flip")
    finally:
        model.train()
        close = getattr(batches, "close", None)  # a generator ends its workers
        if close:
            close()
    loss, accuracy = (world.sum(sums) / count).tolist()
    return Score(loss=loss, accuracy=accuracy)


def _go_on(batches: Iterator[Batch], sums: Tensor, model: nn.Module, precision: Precision, *, mirrored: bool) -> bool:
    """Add batches to `sums` (loss, hits) for the time of a round, at least one; return whether there may be more."""
    end = time.monotonic() + ROUND
    for images, labels in batches:
        with precision.autocast():
            logits = model(images).float()
            if mirrored:
                logits = (logits + model(images.flip(-1)).float()) / 2
        sums[0] += nn.functional.cross_entropy(logits, labels, reduction="sum")
        sums[1] += (logits.argmax(1) == labels).sum()
        if time.monotonic() >= end:
            return True
    return False
