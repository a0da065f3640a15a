"""The catalog of the published data sets: one entry says all that fetching, finding and reading a set needs to know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from trainer.data.published.formats import Arrays, Raw, parse_cifar10, parse_idx


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file to download: one of the set's files, plain or as .gz, or an archive of them all."""

    url: str
    name: str
    """The name that it is found by afterwards: that of one of the set's files, `.gz` included, or of its archive."""
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Mirror:
    """An address that has the whole set. What comes from it counts by its checksums, so it may be plain HTTP."""

    address: str
    """What errors call it."""
    files: tuple[RemoteFile, ...]


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
    sha256: Mapping[str, str]
    """Hexadecimal, for each of `files`, of the uncompressed content as it was published."""
    images: tuple[int, int]
    """For training and for testing. A copy of this size with other checksums is damaged, or a lookalike."""
    mirrors: tuple[Mirror, ...]
    """Where its authors publish it, tried in turn."""
    package: Package | None = None
    ways_out: tuple[str, str]
    """What users can do if no source has the set; `{root}` stands for the data folder. The network is a third way."""


_FASHION_MNIST_SHA256 = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
"""Computed from the Debian package, whose .gz files differ from the published ones in their headers alone (no name,
another time). With name and time put back, their MD5s are those that the authors publish.
"""
_FASHION_MNIST_GZ_SHA256 = {
    "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
}
"""Computed in the same way."""
_FASHION_MNIST_ADDRESSES = (
    "https://fashion-mnist.s3.eu-central-1.amazonaws.com/",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
)
"""One bucket twice. The second is the address that the authors name; such addresses don't speak HTTPS."""
_FASHION_MNIST_PACKAGE = Package(name="dataset-fashion-mnist", folder="usr/share/datasets/fashion-mnist", megabytes=31)
_CIFAR10_SHA256 = {
    "data_batch_1": "54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd",
    "data_batch_2": "766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8",
    "data_batch_3": "0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9",
    "data_batch_4": "3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b",
    "data_batch_5": "d91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154",
    "test_batch": "f53d8d457504f7cff4ea9e021afcf0e0ad8e24a91f3fc42091b8adef61157831",
}
"""The authors publish MD5s alone. Not computed here: these are the values that several projects check independently,
some of them beside the authors' MD5s.
"""
_CIFAR10_ARCHIVE = RemoteFile(
    url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    name="cifar-10-python.tar.gz",
    sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",  # as Keras checks it
)
_CIFAR10_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
_CIFAR10_TEST = ("test_batch",)

CATALOG = {
    "fashion-mnist": PublishedSet(
        files=tuple(_FASHION_MNIST_SHA256),
        parse=partial(parse_idx, train="train", test="t10k"),
        folder="FashionMNIST/raw",
        # flat, torchvision's, torchvision's below its root, Debian's, the data set's own repository
        layouts=("", "FashionMNIST/raw", "raw", "fashion-mnist", _FASHION_MNIST_PACKAGE.folder, "data/fashion"),
        sha256=_FASHION_MNIST_SHA256,
        images=(60_000, 10_000),
        mirrors=tuple(
            Mirror(
                address=address,
                files=tuple(
                    RemoteFile(url=f"{address}{name}", name=name, sha256=sha256)
                    for name, sha256 in _FASHION_MNIST_GZ_SHA256.items()
                ),
            )
            for address in _FASHION_MNIST_ADDRESSES
        ),
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
        archives=(_CIFAR10_ARCHIVE.name, "cifar-10-python.tar"),
        sha256=_CIFAR10_SHA256,
        images=(50_000, 10_000),
        mirrors=(Mirror(address=_CIFAR10_ARCHIVE.url, files=(_CIFAR10_ARCHIVE,)),),
        ways_out=(
            "DATA=/path/to/your/copy of cifar-10-python.tar.gz",
            "download that file elsewhere and put it into {root}",
        ),
    ),
}
"""By the name that `--dataset` takes: `trainer/config/flags.py` lists the same names."""
