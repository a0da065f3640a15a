"""Random crops, flips and cutouts of whole batches of images of one size."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """How training images are varied; by default not at all."""

    shift: int = 0
    """Largest shift in pixels to each side: a random crop from the image padded by as much (He et al. 2016, 4.2)."""
    flip: str = "none"
    """none, random (each image, each epoch, with probability 1/2), or alternate: a random half in the first epoch,
    then each image every other epoch (Jordan 2024, arXiv:2404.00498), so that two epochs always show both sides."""
    cutout: int = 0
    """Edge in pixels of a square set to the mean, centred anywhere (DeVries & Taylor 2017, arXiv:1708.04552)."""


@dataclass(frozen=True, kw_only=True)
class Draws:
    """Random draws for N images; each (N,) or (N, 2), or None if the augmentation is off."""

    corner: Tensor | None
    """int64 (N, 2): row and column of the crop in the padded image."""
    flipped: Tensor | None
    """bool (N,)."""
    hole: Tensor | None
    """int64 (N, 2): row and column of the cutout's centre."""


def draw(
    augmentation: Augmentation,
    indices: Tensor,
    *,
    size: tuple[int, int],
    epoch: int,
    first_flips: Tensor,
    generator: torch.Generator,
) -> Draws:
    """Draw for the images with these indices, int64 (N,), of (height, width) `size`.

    `first_flips`: bool, one for each image of the data set: those that alternate flipping mirrors first.
    """
    count = len(indices)
    corner = flipped = hole = None
    if augmentation.shift:
        corner = torch.randint(2 * augmentation.shift + 1, (count, 2), generator=generator)
    if augmentation.flip == "random":
        flipped = torch.rand(count, generator=generator) < 0.5
    elif augmentation.flip == "alternate":
        flipped = first_flips[indices] ^ bool(epoch % 2)
    if augmentation.cutout:
        hole = torch.stack([torch.randint(side, (count,), generator=generator) for side in size], dim=1)
    return Draws(corner=corner, flipped=flipped, hole=hole)


class Windows:
    """Images in memory, taken in batches of crops, mirrored if requested, by one copy of one span per image.

    From its first pixel to its last, a crop of a padded image is one piece of memory, with padding between its rows.
    Copying that piece and viewing it with the padded image's strides is five times faster than indexing rows.
    """

    def __init__(self, images: Tensor, *, shift: int, mirrored: bool, device: torch.device) -> None:
        """`images`: uint8 (N, C, H, W), kept on `device` in (N, H, W, C) order, with `shift` zeros on all sides."""
        channels, height, width = images.shape[1:]
        self._count, self._mirrored = len(images), mirrored
        self._shape = (channels, height, width)
        rows = pad(images.to(device), (shift, shift, shift, shift)).permute(0, 2, 3, 1)
        sides = torch.cat([rows, rows.flip(2)]) if mirrored else rows.contiguous()
        self._row = (width + 2 * shift) * channels
        self._image = (height + 2 * shift) * self._row
        self._span = (height - 1) * self._row + width * channels
        flat = sides.view(-1)
        self._spans = flat.as_strided((flat.numel() - self._span + 1, self._span), (1, 1))
        self._buffer = flat.new_empty(0)

    def take(self, indices: Tensor, corner: Tensor | None, flipped: Tensor | None) -> Tensor:
        """Return images as a uint8 view (B, C, H, W), in (N, H, W, C) order, valid until the next call."""
        channels, height, width = self._shape
        where = indices if flipped is None else torch.add(indices, flipped, alpha=self._count)
        starts = where * self._image
        if corner is not None:
            starts = starts.add_(corner[:, 0], alpha=self._row).add_(corner[:, 1], alpha=channels)
        if self._buffer.shape != (len(indices), self._span):
            with torch.inference_mode(False):  # also usable in training if an evaluation is the first to need this size
                self._buffer = self._spans.new_empty((len(indices), self._span))
        spans = torch.index_select(self._spans, 0, starts, out=self._buffer)
        return spans.as_strided((len(indices), channels, height, width), (self._span, 1, self._row, channels))


def cut_out(images: Tensor, hole: Tensor, edge: int) -> Tensor:
    """Set a square of `edge` pixels around each hole's centre to 0, in place; `images`: (B, C, H, W)."""
    height, width = images.shape[2:]

    def near(centre: Tensor, side: int) -> Tensor:
        first = (centre - edge // 2)[:, None]
        places = torch.arange(side, device=images.device)
        return (places >= first) & (places < first + edge)

    square = near(hole[:, 0], height)[:, None, :, None] & near(hole[:, 1], width)[:, None, None, :]
    return images.masked_fill_(square, 0.0)
