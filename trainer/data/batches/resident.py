"""A data set that lives on the device as bytes: no workers, no decoding, no copies from the host."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from trainer.data.batches.augment import Augmentation, Draws, Windows, cut_out, draw
from trainer.data.batches.normalize import Normalize
from trainer.data.batches.protocols import Batch
from trainer.data.batches.sampling import Epoch, generator

TEST_BATCH = 500
"""Images per forward pass of an evaluation: enough to fill a device, and few enough to stay in a CPU's cache."""
NOTHING_DRAWN = Draws(corner=None, flipped=None, hole=None)


class Resident:
    """Images and labels on one device, as normalized batches for training or evaluation."""

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device,
        memory_format: torch.memory_format = torch.contiguous_format,
        augmentation: Augmentation | None = None,
        seed: int = 0,
    ) -> None:
        """`images`: uint8 (N, C, H, W); `labels`: int64 (N,); `mean`, `std`: per channel, of values from 0 to 1."""
        self._augmentation = augmentation or Augmentation()
        self._device = device
        channels, height, width = images.shape[1:]
        self._size = (height, width)
        self._windows = Windows(
            images, shift=self._augmentation.shift, mirrored=self._augmentation.flip != "none", device=device
        )
        self._labels = labels.to(device)
        self._normalize = Normalize(
            mean=mean, std=std, shape=(channels, height, width), device=device, memory_format=memory_format
        )
        self._batch = torch.empty(0)
        self._first_flips = torch.rand(len(labels), generator=generator("flips", seed)) < 0.5

    def __len__(self) -> int:
        return len(self._labels)

    def epoch(self, epoch: Epoch) -> Iterator[Batch]:
        """Yield the batches of one rank's forward/backward passes."""
        numbers = epoch.generator()
        order = torch.randperm(len(self), generator=numbers)
        drawn = draw(
            self._augmentation,
            order,
            size=self._size,
            epoch=epoch.number,
            first_flips=self._first_flips,
            generator=numbers,
        )
        size = epoch.plan.micro_batch

        def parts(values: Tensor | None) -> Sequence[Tensor | None]:
            """Return this rank's draws, moved to the device as a whole, one part for each batch."""
            if values is None:
                return [None] * len(indices)
            return torch.split(epoch.mine(values).contiguous().to(self._device), size)

        indices = torch.split(epoch.mine(order).contiguous().to(self._device), size)
        corners, flips, holes = parts(drawn.corner), parts(drawn.flipped), parts(drawn.hole)
        for part, corner, flipped, hole in zip(indices, corners, flips, holes, strict=True):
            yield self.batch(part, Draws(corner=corner, flipped=flipped, hole=hole))

    def example(self, count: int) -> Batch:
        """Return any `count` of the images."""
        return self.batch(torch.arange(count, device=self._device) % len(self), NOTHING_DRAWN)

    def share(self, rank: int, world_size: int, count: int) -> Iterator[Batch]:
        """Yield every `world_size`-th of the first `count` images, from the `rank`-th on."""
        for part in torch.split(torch.arange(count, device=self._device)[rank::world_size], TEST_BATCH):
            yield self.batch(part, NOTHING_DRAWN)

    def batch(self, indices: Tensor, drawn: Draws) -> Batch:
        """Return the images with these indices, int64 (B,) on the device, augmented as `drawn`."""
        corner = drawn.corner
        if corner is None and self._augmentation.shift:  # the middle of the padded image
            corner = torch.full((len(indices), 2), self._augmentation.shift, device=self._device)
        pixels = self._windows.take(indices, corner, drawn.flipped)
        if self._batch.shape != pixels.shape:
            self._batch = self._normalize.buffer(len(pixels))
        images = self._normalize.into(self._batch, pixels)
        if drawn.hole is not None:
            cut_out(images, drawn.hole, self._augmentation.cutout)
        return images, self._labels.index_select(0, indices)
