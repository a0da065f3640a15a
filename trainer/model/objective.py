"""What is minimized: cross-entropy, of smoothed labels and mixed pictures where wanted."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from trainer.data.batches.protocols import Batch


@dataclass(frozen=True, kw_only=True)
class Objective:
    """Cross-entropy. What it draws comes from the CPU's generator, which checkpoints keep: a resumed run draws on."""

    classes: int = 0
    """Needed for `mixup` and `cutmix` only."""
    label_smoothing: float = 0.0
    """Share of each label that is spread over all classes evenly, 0..1 (Szegedy et al. 2016, arXiv:1512.00567)."""
    mixup: float = 0.0
    """Pictures are mean values of two, weighted by Beta(mixup, mixup) (Zhang et al. 2017, arXiv:1710.09412); 0: no."""
    cutmix: float = 0.0
    """A rectangle comes from another picture; Beta(cutmix, cutmix) is the share that stays (Yun et al. 2019,
    arXiv:1905.04899); 0: no. With `mixup` too, each batch gets the one or the other."""

    def mix(self, images: Tensor, labels: Tensor) -> Batch:
        """What the model is shown, and the targets it is held to: (B,) labels, or where mixed (B, classes) shares.

        Each picture's partner is its neighbour in the batch, which is in random order already; one weight holds for
        the whole batch, so that nothing waits for the device. `images` may be changed in place.
        """
        if not (self.mixup or self.cutmix):
            return images, labels
        cuts = self.cutmix > 0 and (self.mixup == 0 or torch.rand(()).item() < 0.5)
        alpha = self.cutmix if cuts else self.mixup
        kept = torch.distributions.Beta(alpha, alpha).sample().item()
        if cuts:
            kept = _cut(images, kept)
        else:
            images = images.lerp(images.roll(1, 0), 1 - kept)
        shares = one_hot(labels, self.classes).float()
        return images, shares.lerp(shares.roll(1, 0), 1 - kept)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Mean over the batch, computed in fp32. `logits`: (B, classes); `targets`: (B,) or (B, classes)."""
        return cross_entropy(logits.float(), targets, label_smoothing=self.label_smoothing)


def _cut(images: Tensor, kept: float) -> float:
    """Puts a rectangle of each picture's neighbour in its place; returns the share of the picture that is left.

    The rectangle has `1 - kept` of the area around a centre anywhere in the picture, and is cut off at the edges.
    """
    height, width = images.shape[-2:]
    half = (1 - kept) ** 0.5 / 2
    row, column = (int(torch.randint(length, ()).item()) for length in (height, width))
    top, bottom = max(0, row - int(half * height)), min(height, row + int(half * height))
    left, right = max(0, column - int(half * width)), min(width, column + int(half * width))
    images[..., top:bottom, left:right] = images[..., top:bottom, left:right].roll(1, 0)
    return 1 - (bottom - top) * (right - left) / (height * width)
