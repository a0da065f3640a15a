"""From bytes to what models see: normalized floats, on the device, a whole batch at once."""

from collections.abc import Sequence

import torch
from torch import Tensor


class Normalize:
    """Turns uint8 images of one shape into floats of mean 0 and standard deviation 1 over the training set."""

    def __init__(
        self,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        shape: tuple[int, int, int],
        device: torch.device,
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> None:
        """`mean`, `std`: per channel, of values from 0 to 1; `shape`: (C, H, W) of an image."""
        self.shape, self.device, self.memory_format = shape, device, memory_format
        # As large as an image: broadcast over the batch only, they are read sequentially in any memory order.
        whole = torch.ones(1, *shape, device=device)
        per_channel = (1, len(mean), 1, 1)
        scale, middle = torch.tensor(std) * 255, torch.tensor(mean) / torch.tensor(std)
        self._scale = (whole / scale.view(per_channel).to(device)).contiguous(memory_format=memory_format)
        self._middle = (whole * middle.view(per_channel).to(device)).contiguous(memory_format=memory_format)

    def buffer(self, count: int) -> Tensor:
        """Return room for `count` images: float32 (count, C, H, W), not initialized."""
        with torch.inference_mode(False):  # also usable in training if an evaluation is the first to need this size
            return torch.empty((count, *self.shape), device=self.device, memory_format=self.memory_format)

    def into(self, out: Tensor, pixels: Tensor) -> Tensor:
        """Fill `out`, float32 (B, C, H, W), from `pixels`, uint8 of that shape on the same device; return `out`."""
        return out.copy_(pixels).mul_(self._scale).sub_(self._middle)
