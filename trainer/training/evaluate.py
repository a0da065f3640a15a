"""Exact evaluation: every test picture counts once, whatever the number of ranks."""

from dataclasses import dataclass

import torch
from torch import nn

from trainer.data.batches.protocols import EvaluationPictures
from trainer.distributed.world import World, average_buffers
from trainer.model.precision import Precision


@dataclass(frozen=True, kw_only=True)
class Score:
    """Mean cross-entropy and the fraction (0..1) classified rightly."""

    loss: float
    accuracy: float


@torch.inference_mode()
def evaluate(
    model: nn.Module,
    pictures: EvaluationPictures,
    world: World,
    precision: Precision,
    *,
    limit: int | None,
    sides: str = "none",
) -> Score:
    """Scores the plain (not wrapped) model on the first `limit` pictures; a collective.

    Ranks take turns in the pictures, unpadded, and sums are added, so unequal shares weigh as they should.
    `sides`: none, or flip, which takes the mean of the logits of each picture and its mirror image.
    """
    average_buffers(model, world)
    count = min(limit or len(pictures), len(pictures))
    sums = torch.zeros(2, dtype=torch.float64, device=world.device)
    model.eval()
    for images, labels in pictures.share(world.rank, world.world_size, count):
        with precision.autocast():
            logits = model(images).float()
            if sides == "flip":
                logits = (logits + model(images.flip(-1)).float()) / 2
        sums[0] += nn.functional.cross_entropy(logits, labels, reduction="sum")
        sums[1] += (logits.argmax(1) == labels).sum()
    model.train()
    loss, right = (world.sum(sums) / count).tolist()
    return Score(loss=loss, accuracy=right)
