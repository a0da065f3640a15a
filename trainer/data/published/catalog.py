"""The catalog of the published data sets: one entry says all that fetching, finding and reading a set needs to know.

What torchvision knows of a set is read from torchvision, and only when it is needed: its import takes 3 s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from trainer.data.published.formats import Arrays, Raw, parse_cifar10, parse_idx


@dataclass(frozen=True, kw_only=True)
class Checksums:
    """What the set's files have to hash to if they are the published ones."""

    algorithm: Literal["md5", "sha256"]
    by_file: Callable[[], Mapping[str, str]]
    """Hexadecimal, of the uncompressed content, for each of the set's files."""


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file to download: one of the set's files, plain or as .gz, or an archive of them all."""

    url: str
    name: str
    """The name that it is found by afterwards: that of one of the set's files, `.gz` included, or of its archive."""
    md5: str


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """An address that has the whole set."""

    address: str
    """What errors call it."""
    files: tuple[RemoteFile, ...]


@dataclass(frozen=True, kw_only=True)
class Mirrors:
    """The addresses that one organization publishes; they are tried in turn."""

    owner: str
    known: Callable[[], Sequence[Mirror]]


@dataclass(frozen=True, kw_only=True)
class Package:
    """A package of Debian and Ubuntu."""

    name: str
    folder: str
    """Where the set's files lie below /, or below the folder that the package was unpacked in."""
    megabytes: int


@dataclass(frozen=True, kw_only=True)
class PublishedSet:
    """A published data set whose images fit in memory. Ten classes are assumed: `formats.CLASSES`."""

    files: tuple[str, ...]
    parse: Callable[[Raw], Arrays]
    """Turns the contents of `files` into arrays; raises `DamagedError`."""
    folder: str
    """Where `files` are kept below the data folder: where torchvision looks for them."""
    layouts: tuple[str, ...]
    """Folders below a user's own copy that may contain `files`, plain or as .gz; "" is the copy's own top."""
    archives: tuple[str, ...] = ()
    """Names of tar files that may contain all of `files` instead; () if the set isn't published as an archive."""
    checksums: Checksums
    images: tuple[int, int]
    """For training and for testing. A copy of this size with other checksums is damaged, or a lookalike."""
    mirrors: Mirrors
    package: Package | None = None
    ways_out: tuple[str, str]
    """What users can do if no source has the set; `{root}` stands for the data folder. The network is a third way."""


def _fashion_mnist_mirrors() -> list[Mirror]:
    from torchvision.datasets import FashionMNIST

    return [
        Mirror(
            address=mirror,
            files=tuple(RemoteFile(url=f"{mirror}{file}", name=file, md5=md5) for file, md5 in FashionMNIST.resources),
        )
        for mirror in FashionMNIST.mirrors
    ]


def _cifar10_mirrors() -> list[Mirror]:
    from torchvision.datasets import CIFAR10

    archive = RemoteFile(url=CIFAR10.url, name=CIFAR10.filename, md5=CIFAR10.tgz_md5)
    return [Mirror(address=CIFAR10.url, files=(archive,))]


def _cifar10_md5() -> dict[str, str]:
    from torchvision.datasets import CIFAR10

    return dict([*CIFAR10.train_list, *CIFAR10.test_list])


_FASHION_MNIST_SHA256 = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
"""torchvision publishes MD5s of the .gz files only, and the Debian package's .gz files have different headers (no name,
another time). With name and time put back, their MD5s are torchvision's, so this is the published content.
"""
_FASHION_MNIST_PACKAGE = Package(name="dataset-fashion-mnist", folder="usr/share/datasets/fashion-mnist", megabytes=31)
_CIFAR10_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
_CIFAR10_TEST = ("test_batch",)

CATALOG = {
    "fashion-mnist": PublishedSet(
        files=tuple(_FASHION_MNIST_SHA256),
        parse=partial(parse_idx, train="train", test="t10k"),
        folder="FashionMNIST/raw",
        # flat, torchvision's, torchvision's below its root, Debian's, the data set's own repository
        layouts=("", "FashionMNIST/raw", "raw", "fashion-mnist", _FASHION_MNIST_PACKAGE.folder, "data/fashion"),
        checksums=Checksums(algorithm="sha256", by_file=lambda: _FASHION_MNIST_SHA256),
        images=(60_000, 10_000),
        mirrors=Mirrors(owner="torchvision", known=_fashion_mnist_mirrors),
        package=_FASHION_MNIST_PACKAGE,
        ways_out=(
            "DATA=/path/to/your/copy of the four IDX files",
            f"install the package {_FASHION_MNIST_PACKAGE.name} with apt",
        ),
    ),
    "cifar10": PublishedSet(
        files=_CIFAR10_TRAIN + _CIFAR10_TEST,
        parse=partial(parse_cifar10, train=_CIFAR10_TRAIN, test=_CIFAR10_TEST),
        folder="cifar-10-batches-py",
        layouts=("", "cifar-10-batches-py"),
        archives=("cifar-10-python.tar.gz", "cifar-10-python.tar"),
        checksums=Checksums(algorithm="md5", by_file=_cifar10_md5),
        images=(50_000, 10_000),
        mirrors=Mirrors(owner="torchvision", known=_cifar10_mirrors),
        ways_out=(
            "DATA=/path/to/your/copy of cifar-10-python.tar.gz",
            "download that file elsewhere and put it into {root}",
        ),
    ),
}
"""By the name that `--dataset` takes: `trainer/config/flags.py` lists the same names."""
