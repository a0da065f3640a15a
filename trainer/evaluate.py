"""Exact evaluation: every test picture counts once, whatever the number of ranks."""

from dataclasses import dataclass

import torch
from torch import nn

from trainer.batches import Pictures
from trainer.distributed import World, average_buffers
from trainer.precision import Precision

BATCH = 500
"""Pictures per forward pass: big enough to fill a device, small enough to stay in a CPU's cache."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """Mean cross-entropy and the fraction (0..1) classified rightly."""

    loss: float
    accuracy: float


@torch.inference_mode()
def evaluate(model: nn.Module, pictures: Pictures, world: World, precision: Precision, limit: int | None) -> Score:
    """Scores the plain (not wrapped) model on the first `limit` pictures; a collective.

    Ranks take turns in the pictures, unpadded, and sums are added, so unequal shares weigh as they should.
    """
    average_buffers(model, world)
    count = min(limit or len(pictures), len(pictures))
    share = torch.arange(world.rank, count, world.world_size, device=world.device)
    sums = torch.zeros(2, dtype=torch.float64, device=world.device)
    model.eval()
    for indices in torch.split(share, BATCH):
        images, labels = pictures.batch(indices)
        with precision.autocast():
            logits = model(images)
        sums[0] += nn.functional.cross_entropy(logits.float(), labels, reduction="sum")
        sums[1] += (logits.argmax(1) == labels).sum()
    model.train()
    loss, right = (world.sum(sums) / count).tolist()
    return Score(loss=loss, accuracy=right)
