"""What training minimizes: cross-entropy, with smoothed labels and mixed images if requested."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from trainer.data.batches.protocols import Batch


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Cross-entropy of a batch, mixed beforehand if requested.

    Random numbers come from the CPU's generator, which checkpoints keep, so a resumed run continues the same series.
    """

    classes: int = 0
    """Needed for `mixup` and `cutmix` only."""
    label_smoothing: float = 0.0
    """Share of each label that is spread over all classes evenly, 0..1 (Szegedy et al. 2016, arXiv:1512.00567)."""
    mixup: float = 0.0
    """Images are averages of two, weighted by Beta(mixup, mixup) (Zhang et al. 2017, arXiv:1710.09412); 0: no."""
    cutmix: float = 0.0
    """A rectangle comes from another image; Beta(cutmix, cutmix) is the share that remains (Yun et al. 2019,
    arXiv:1905.04899); 0: no. With `mixup` too, each batch gets one or the other."""

    def mix(self, images: Tensor, labels: Tensor) -> Batch:
        """Return the images for the model and the targets: (B,) labels or, for mixed images, (B, classes) shares.

        Each image's partner is its neighbour in the batch, which is in random order already. One weight applies to
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

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean over the batch, computed in fp32. `logits`: (B, classes); `targets`: (B,) or (B, classes)."""
        return cross_entropy(logits.float(), targets, label_smoothing=self.label_smoothing)


def _cut(images: Tensor, kept: float) -> float:
    """Replace a rectangle of each image by its neighbour's; return the share of the image that is left.

    The rectangle has `1 - kept` of the area around a centre anywhere in the image, and is clipped at the edges.
    """
    height, width = images.shape[-2:]
    half = (1 - kept) ** 0.5 / 2
    row, column = (int(torch.randint(length, ()).item()) for length in (height, width))
    top, bottom = max(0, row - int(half * height)), min(height, row + int(half * height))
    left, right = max(0, column - int(half * width)), min(width, column + int(half * width))
    images[..., top:bottom, left:right] = images[..., top:bottom, left:right].roll(1, 0)
    return 1 - (bottom - top) * (right - left) / (height * width)
