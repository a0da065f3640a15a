"""One image at a time: reading, decoding, cropping, resizing, mirroring. What worker processes do.

torchvision decodes. Why not TorchCodec, for which torchvision is giving up its decoders:
docs/decisions/0032-torchvision-decodes-images.md.
"""

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from trainer.data.streaming.image_folder import MEAN, Files

MOST_UNREADABLE = 20
"""How many training images in a row may be unreadable; more can't be an accident."""
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
"""A random crop's share of the image's area, and its width over its height (Szegedy et al. 2015,
arXiv:1409.4842, section 6)."""
MARGIN = 224 / 256
"""Edge of an evaluation's crop over the image's shorter side: the usual "resize to 256, crop 224"."""


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Some images of one batch: a worker's unit of work. Plain lists, because they go through a pipe."""

    indices: list[int]
    place: int
    """Where it begins in its batch."""
    batch: int
    """Number of images in that batch."""
    crops: list[list[float]] | None
    """Four numbers from 0 to 1 for each random crop; None = the middle, for evaluation."""
    flips: list[bool] | None

    @property
    def ends_batch(self) -> bool:
        """Whether it is the last chunk of its batch."""
        return self.place + len(self.indices) == self.batch


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """A chunk's images."""

    chunk: Chunk
    pixels: Tensor
    """uint8 (n, H, W, C)."""
    labels: list[int]
    broken: list[str] = field(default_factory=list)
    """Files that could not be read, and why."""
    raw: list[Tensor] | None = None
    """The files' bytes instead, if the GPU decodes; `pixels` is then empty."""

    def pin_memory(self) -> "Decoded":
        """Return a copy in page-locked memory, which goes to a GPU while the CPU continues; torch's loader calls it."""
        return Decoded(
            chunk=self.chunk, pixels=self.pixels.pin_memory(), labels=self.labels, broken=self.broken, raw=self.raw
        )


@dataclass(frozen=True, kw_only=True)
class ImageDataset:
    """The images of some files, in chunks: a map-style data set for torch's loader."""

    files: Files
    size: int
    """Height and width of the images returned."""
    crop: str
    """`resized`: random crops of random size and shape, resized; `random`: random crops of `size` pixels."""
    raw: bool = False
    """Leaves the decoding to the GPU."""

    def __getitem__(self, chunk: Chunk) -> Decoded:
        """Read and decode. The next readable file in the list replaces an unreadable training image.

        So batches keep their size on every rank, and classes almost their share, as neighbours are of one class. In an
        evaluation each file counts once, so an unreadable one becomes plain grey.

        Raises:
            UnreadableError: `MOST_UNREADABLE` images in a row can't be read.
        """
        labels = self.files.labels[torch.tensor(chunk.indices)].tolist()
        if self.raw and (raw := self._bytes(chunk)) is not None:
            return Decoded(chunk=chunk, pixels=torch.empty(0, dtype=torch.uint8), labels=labels, raw=raw)
        pixels = torch.empty(len(chunk.indices), self.size, self.size, 3, dtype=torch.uint8)
        broken: list[str] = []
        for place, number in enumerate(chunk.indices):
            image, used = self._readable(number, replace=chunk.crops is not None, broken=broken)
            if image is None:
                pixels[place] = torch.tensor([round(255 * value) for value in MEAN], dtype=torch.uint8)
                continue
            labels[place] = int(self.files.labels[used])
            shown = cut(image, self.size, self.crop, chunk.crops[place] if chunk.crops else None).permute(1, 2, 0)
            pixels[place] = shown.flip(1) if chunk.flips and chunk.flips[place] else shown
        return Decoded(chunk=chunk, pixels=pixels, labels=labels, broken=broken)

    def _readable(self, number: int, *, replace: bool, broken: list[str]) -> tuple[Tensor | None, int]:
        """Return the image, or the next readable one, and its number; None if it is unreadable and not replaced."""
        for candidate in range(number, number + MOST_UNREADABLE):
            used = candidate % len(self.files)
            try:
                return decode(self.files.path(used)), used
            except (RuntimeError, OSError, ValueError) as error:
                broken.append(f"{printable(self.files.path(used))}: {_reason(error)}")
            if not replace:
                return None, number
        raise UnreadableError(f"{MOST_UNREADABLE} images in a row can't be read, the first: {broken[0]}")

    def _bytes(self, chunk: Chunk) -> list[Tensor] | None:
        """Return the files as they are; None if one of them is missing or not JPEG, and the CPU has to decode."""
        try:
            raw = [read(self.files.path(number)) for number in chunk.indices]
        except (OSError, ValueError):
            return None
        return raw if all(content[:2].tolist() == [0xFF, 0xD8] for content in raw) else None  # JPEG's first marker


class UnreadableError(Exception):
    """Too many images in a row can't be read."""


@functools.cache
def io() -> Any:
    """Return torchvision's decoders, imported at first use, because that takes a second."""
    import torchvision.io

    return torchvision.io


def read(path: str) -> Tensor:
    """Return the file's bytes, uint8. (torchvision's own reader refuses names that are not UTF-8.)

    Raises:
        OSError: the file can't be read.
        ValueError: it is empty.
    """
    content = bytearray(Path(path).read_bytes())
    if not content:
        raise ValueError("the file is empty")
    return torch.frombuffer(content, dtype=torch.uint8)


def printable(path: str) -> str:
    """Return any path in characters that every stream accepts: bytes that are not UTF-8 as \\xff."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) else str(error)
    return text.splitlines()[0] if text else type(error).__name__


def decode(path: str) -> Tensor:
    """Return the image as uint8 (3, H, W).

    Raises:
        RuntimeError, OSError, ValueError: it can't be read.
    """
    image: Tensor = io().decode_image(read(path), mode=io().ImageReadMode.RGB)
    if image.dtype == torch.uint16:  # PNG files may have 16 bits
        image = (image.to(torch.int32) >> 8).to(torch.uint8)
    return image


def cut(image: Tensor, size: int, crop: str, draws: Sequence[float] | None) -> Tensor:
    """Return a window of `image`, uint8 (C, H, W), as (C, size, size). `draws`: None = its middle."""
    height, width = image.shape[1:]
    if draws is None:
        window = middle_window(height, width)
    elif crop == "resized":
        window = resized_window(height, width, draws)
    else:
        window = random_window(height, width, size, draws)
    top, left, rows, columns = window
    part = image[:, top : top + rows, left : left + columns]
    if (rows, columns) == (size, size):
        return part
    if part.device.type == "cuda":  # which can't do this on bytes
        resized = interpolate(part[None].float(), size=(size, size), mode="bilinear", antialias=True)
        return resized[0].round().clamp(0, 255).to(torch.uint8)
    return interpolate(part[None], size=(size, size), mode="bilinear", antialias=True)[0]


def middle_window(height: int, width: int) -> tuple[int, int, int, int]:
    """Return top, left, height, width of an evaluation's crop.

    The result is that of resizing the shorter side to size / MARGIN and cropping the middle, but only the pixels of
    the crop are resized.
    """
    edge = max(1, round(min(height, width) * MARGIN))
    return (height - edge) // 2, (width - edge) // 2, edge, edge


def random_window(height: int, width: int, size: int, draws: Sequence[float]) -> tuple[int, int, int, int]:
    """Return a square of `size` pixels anywhere, or as large as the image allows."""
    edge = min(size, height, width)
    return int(draws[2] * (height - edge + 1)), int(draws[3] * (width - edge + 1)), edge, edge


def resized_window(height: int, width: int, draws: Sequence[float]) -> tuple[int, int, int, int]:
    """Return a window of random area and shape (AREA, RATIO; the shape's logarithm is uniform), anywhere.

    `draws`: four numbers from 0 to 1. torchvision's RandomResizedCrop draws again if a window doesn't fit; here it is
    clipped to the image, so that each image takes the same number of draws.
    """
    area = height * width * (AREA[0] + draws[0] * (AREA[1] - AREA[0]))
    ratio = RATIO[0] * (RATIO[1] / RATIO[0]) ** draws[1]
    columns = min(width, max(1, round((area * ratio) ** 0.5)))
    rows = min(height, max(1, round((area / ratio) ** 0.5)))
    return int(draws[2] * (height - rows + 1)), int(draws[3] * (width - columns + 1)), rows, columns
