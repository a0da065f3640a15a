"""Made-up photographs for measurements: large JPEG files with structure at every scale."""

import os
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from trainer.data.streaming.decode import io

CLASSES = 4
QUALITY = 90
COPIES = 128
"""Names of each file: reading it again and again costs what it does from a warm page cache."""


def make_images(folder: Path, *, count: int = 128, least: int = 512, most: int = 768, seed: int = 0) -> None:
    """Fill `folder` with train/<class>/… and val/<class>/…: `count` JPEG files with edges of `least` to `most` pixels.

    They have 50 to 150 kB each; the training images have COPIES names each.
    """
    generator = torch.Generator().manual_seed(seed)
    for number in range(count):
        edges = torch.randint(least, most + 1, (2,), generator=generator).tolist()
        content = io().encode_jpeg(_image(edges[0], edges[1], generator), quality=QUALITY).numpy().tobytes()
        label = f"class{number % CLASSES}"
        for part in ("train", "val"):
            (folder / part / label).mkdir(parents=True, exist_ok=True)
        first = folder / "val" / label / f"{number}.jpg"
        first.write_bytes(content)
        for copy in range(COPIES):
            os.link(first, folder / "train" / label / f"{number}-{copy}.jpg")


def _image(height: int, width: int, generator: torch.Generator) -> Tensor:
    """Return noise that weakens with its frequency, as in photographs (Field 1987): uint8 (3, height, width)."""
    image = torch.zeros(1, 3, height, width)
    cells = 4
    while cells < min(height, width):
        noise = torch.randn(1, 3, cells, cells, generator=generator)
        noise = noise.mean(1, keepdim=True) + 0.3 * noise  # brightness varies more than colour
        image += interpolate(noise, size=(height, width), mode="bilinear") * 80 * cells**-0.4
        cells *= 2
    return (image[0] + 120).clamp(0, 255).to(torch.uint8)
