"""Exact evaluation: every test image counts once, whatever the number of ranks."""

from dataclasses import dataclass

import torch
from torch import nn

from trainer.data.batches.protocols import EvaluationImages
from trainer.distributed.world import World, average_buffers
from trainer.model.precision import Precision


@dataclass(frozen=True, kw_only=True)
class Score:
    """Mean cross-entropy, and the fraction (0..1) of images classified correctly."""

    loss: float
    accuracy: float


@torch.inference_mode()
def evaluate(
    model: nn.Module,
    data: EvaluationImages,
    world: World,
    precision: Precision,
    *,
    limit: int | None,
    augmentation: str = "none",
) -> Score:
    """Score the plain (not wrapped) model on the first `limit` images; a collective.

    The images are dealt out to the ranks in turn, without padding, and the ranks' sums are added, so unequal shares
    have their proper weights. `augmentation`: none, or flip, which takes the mean of the logits of each image and its
    mirror image.
    """
    average_buffers(model, world)
    count = min(limit or len(data), len(data))
    sums = torch.zeros(2, dtype=torch.float64, device=world.device)
    model.eval()
    for images, labels in data.share(world.rank, world.world_size, count):
        with precision.autocast():
            logits = model(images).float()
            if augmentation == "flip":
                logits = (logits + model(images.flip(-1)).float()) / 2
        sums[0] += nn.functional.cross_entropy(logits, labels, reduction="sum")
        sums[1] += (logits.argmax(1) == labels).sum()
    model.train()
    loss, accuracy = (world.sum(sums) / count).tolist()
    return Score(loss=loss, accuracy=accuracy)
