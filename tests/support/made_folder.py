"""Small image folders for tests."""

from pathlib import Path

import torch
import torchvision.io


def write(path: Path, *, height: int = 20, width: int = 24, seed: int = 0) -> Path:
    """Write an image of noise, JPEG or PNG by its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = torch.Generator().manual_seed(seed)
    image = torch.randint(256, (3, height, width), generator=noise).to(torch.uint8)
    saver = torchvision.io.write_png if path.suffix == ".png" else torchvision.io.write_jpeg
    saver(image, str(path))
    return path


def fill(root: Path, *, train: int = 16, test: int = 5) -> Path:
    """Fill a folder with classes `cat` and `dog`, with this many images each, all different."""
    for label, name in enumerate(("cat", "dog")):
        for number in range(train):
            seed = 1000 * label + number
            write(root / "train" / name / f"{number}{'.png' if number % 2 else '.jpg'}", width=20 + number, seed=seed)
        for number in range(test):
            write(root / "val" / name / f"{number}.jpg", seed=2000 + 1000 * label + number)
    return root
