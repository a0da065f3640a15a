"""Image folders: `train/<class>/…` and `val/<class>/…` with JPEG and PNG files. Free of torchvision."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from trainer.errors import UserError

ENDINGS = (".jpg", ".jpeg", ".png")
TEST_FOLDERS = ("val", "valid", "test")
"""Possible names of the folder of test images; the first one that exists counts."""
LAYOUT = "expected: train/<class>/*.jpg and val/<class>/*.jpg (also .jpeg, .png; valid/ or test/ in place of val/)"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's training images, red, green and blue, for values from 0 to 1: the figures that torchvision's pretrained
models expect (docs.pytorch.org/vision, "Models and pre-trained weights"); most photographs are close to them."""


class Files:
    """Paths and labels of images, in three tensors, which worker processes share however many files there are."""

    def __init__(self, root: Path, names: Sequence[str], labels: Sequence[int]) -> None:
        """`names`: below `root`; `labels`: one for each."""
        encoded = [os.fsencode(name) for name in names]
        self.root = root
        self._ends = torch.tensor(np.cumsum([0, *map(len, encoded)]), dtype=torch.int64)
        self._names = torch.frombuffer(bytearray(b"".join(encoded) or b"\0"), dtype=torch.uint8)
        self.labels = torch.tensor(labels, dtype=torch.int64)
        for table in (self._ends, self._names, self.labels):
            table.share_memory_()  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return len(self.labels)

    def name(self, number: int) -> str:
        """Return the path of an image below the root."""
        first, end = self._ends[number : number + 2].tolist()
        return os.fsdecode(self._names[first:end].numpy().tobytes())

    def path(self, number: int) -> str:
        """Return the whole path of an image."""
        return f"{self.root}/{self.name(number)}"

    def digest(self) -> str:
        """Return a digest that differs for other lists of names and labels."""
        tables = (self._ends, self._names, self.labels)
        return hashlib.sha256(b"".join(table.numpy().tobytes() for table in tables)).hexdigest()


@dataclass(frozen=True, kw_only=True)
class ImageFolder:
    """Images in folders, one folder per class."""

    classes: tuple[str, ...]
    """In the order of their labels, by name."""
    train: Files
    test: Files

    def identity(self) -> str:
        """Return the data set's name in checkpoints: `folder:<classes>/<files>`, digests that `state.restore` reads."""
        classes = hashlib.sha256(os.fsencode("\0".join(self.classes))).hexdigest()
        return f"folder:{classes[:12]}/{self.digest()[:12]}"

    def digest(self) -> str:
        """Return a digest that is the same for the same files, wherever they lie."""
        text = "\0".join((*self.classes, self.train.digest(), self.test.digest()))
        return hashlib.sha256(os.fsencode(text)).hexdigest()


def find(root: Path) -> ImageFolder:
    """Look for the images below `root`, without opening any.

    Raises:
        UserError: exit code 2, if the layout is different, a class has no images, or a folder can't be read.
    """
    try:
        train = _classes(root / "train")
        test_root = next((root / name for name in TEST_FOLDERS if (root / name).is_dir()), root / TEST_FOLDERS[0])
        test = _classes(test_root)
    except OSError as error:
        raise UserError(f"DATA={root}: {error.filename}: {error.strerror}; {LAYOUT}", exit_code=2) from error
    _check(root, train, test, test_root)
    classes = tuple(sorted(train))
    return ImageFolder(
        classes=classes, train=_files(root / "train", classes, train), test=_files(test_root, classes, test)
    )


def _classes(place: Path) -> dict[str, list[str]]:
    """Return the names of the images below each of the folders in `place`, sorted.

    Raises:
        OSError: a folder can't be read.
    """
    with os.scandir(place) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    return {name: sorted(_images(place / name)) for name in names}


def _images(folder: Path) -> list[str]:
    """Return the images' names below `folder`, at any depth; hidden files (macOS leaves some) don't count."""

    def unreadable(error: OSError) -> None:
        raise error

    names = []
    for place, _, files in os.walk(folder, onerror=unreadable):
        below = os.path.relpath(place, folder.parent)
        names += [f"{below}/{name}" for name in files if name.lower().endswith(ENDINGS) and not name.startswith(".")]
    return names


def _check(root: Path, train: dict[str, list[str]], test: dict[str, list[str]], test_root: Path) -> None:
    if empty := [name for name, files in train.items() if not files]:
        raise UserError(
            f"DATA={root}: no images ({', '.join(ENDINGS)}) in train/{empty[0]}"
            f"{_and_more(empty)}; fill or remove that folder",
            exit_code=2,
        )
    if not train or not any(test.values()):
        place = root / "train" if not train else test_root
        raise UserError(f"DATA={root}: no classes with images in {place}; {LAYOUT}", exit_code=2)
    if unknown := [name for name, files in test.items() if files and name not in train]:
        raise UserError(
            f"DATA={root}: {test_root.name}/{unknown[0]}{_and_more(unknown)} is a class that train/ doesn't have; "
            "give it training images or remove it",
            exit_code=2,
        )


def _and_more(names: list[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def _files(place: Path, classes: tuple[str, ...], names: dict[str, list[str]]) -> Files:
    labelled = [(name, label) for label, each in enumerate(classes) for name in names.get(each, [])]
    return Files(place, [name for name, _ in labelled], [label for _, label in labelled])


def refuse_differing(digests: Sequence[str], root: Path) -> None:
    """Refuse ranks that see different files: labels and batches would not be what they seem.

    Raises:
        UserError: exit code 2.
    """
    others = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
    if others:
        raise UserError(
            f"DATA={root}: rank(s) {', '.join(map(str, others))} see other files or classes there than rank 0; "
            "make the folder the same on every node",
            exit_code=2,
        )
