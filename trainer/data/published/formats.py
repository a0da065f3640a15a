"""Parses the file formats of the data sets: bytes in, checked arrays out, without touching a disk or the network.

IDX (Fashion-MNIST): http://yann.lecun.com/exdb/mnist/, section "File formats".
CIFAR-10, Python version: https://www.cs.toronto.edu/~kriz/cifar.html, section "Dataset layout".
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
Raw = Mapping[str, Any]
"""File name -> its uncompressed content, as bytes or as an array of bytes."""

CLASSES = 10
"""Every published data set has ten classes so far, labelled 0 to 9."""


class DamagedError(ValueError):
    """A file is not what its format says; the message names the file and what is wrong."""


@dataclass(frozen=True, kw_only=True)
class Arrays:
    """One data set: images uint8 (N, C, H, W), labels int64 (N,)."""

    train_images: Images
    train_labels: Labels
    test_images: Images
    test_labels: Labels


def _idx(name: str, content: Any, *, dimensions: int) -> Images:
    """Return the array in an IDX file of bytes: 0, 0, 8 (unsigned bytes), number of dimensions, sizes, data."""
    header = 4 + 4 * dimensions
    data = np.frombuffer(content, dtype=np.uint8)
    if len(data) < header or data[:4].tolist() != [0, 0, 8, dimensions]:
        raise DamagedError(f"{name} is not an IDX file of bytes in {dimensions} dimension(s)")
    shape = tuple(int(size) for size in np.frombuffer(content, dtype=">u4", count=dimensions, offset=4))
    expected = header + int(np.prod(shape, dtype=np.uint64))
    if len(data) != expected:
        raise DamagedError(f"{name} has {len(data)} bytes where its header promises {expected}")
    return data[header:].reshape(shape)


def _labels(name: str, values: Any) -> Labels:
    labels = np.asarray(values)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels):
        raise DamagedError(f"{name} contains no list of labels")
    if int(labels.min()) < 0 or int(labels.max()) >= CLASSES:
        raise DamagedError(f"{name} contains labels outside 0 to {CLASSES - 1}")
    return labels.astype(np.int64)


def parse_idx(raw: Raw, *, train: str, test: str) -> Arrays:
    """Parse MNIST's four IDX files, or those of a set like it; images are (N, 1, 28, 28).

    `train` and `test` are what the names of the two files for training, and for testing, begin with.

    Raises:
        DamagedError: a header, a length, a size or a label is wrong.
    """

    def split(prefix: str) -> tuple[Images, Labels]:
        image_file, label_file = f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"
        images = _idx(image_file, raw[image_file], dimensions=3)
        labels = _labels(label_file, _idx(label_file, raw[label_file], dimensions=1))
        if images.shape[1:] != (28, 28):
            raise DamagedError(f"{image_file} contains images of {images.shape[1]}x{images.shape[2]}, not 28x28")
        if len(images) != len(labels):
            raise DamagedError(f"{image_file} contains {len(images)} images but {label_file} {len(labels)} labels")
        return images[:, None], labels

    train_images, train_labels = split(train)
    test_images, test_labels = split(test)
    return Arrays(
        train_images=train_images, train_labels=train_labels, test_images=test_images, test_labels=test_labels
    )


def parse_cifar10(raw: Raw, *, train: tuple[str, ...], test: tuple[str, ...]) -> Arrays:
    """Parse CIFAR-10's batches, the files `train` and the files `test`; images are (N, 3, 32, 32).

    Raises:
        DamagedError: a batch is not a pickle of plain data, or its shapes or labels are wrong.
    """

    def split(names: tuple[str, ...]) -> tuple[Images, Labels]:
        batches = [_cifar_batch(name, raw[name]) for name in names]
        return np.concatenate([images for images, _ in batches]), np.concatenate([labels for _, labels in batches])

    train_images, train_labels = split(train)
    test_images, test_labels = split(test)
    return Arrays(
        train_images=train_images, train_labels=train_labels, test_images=test_images, test_labels=test_labels
    )


def _cifar_batch(name: str, content: Any) -> tuple[Images, Labels]:
    batch = _load_plain_pickle(name, bytes(content))
    if not isinstance(batch, dict):
        raise DamagedError(f"{name} contains no dictionary")
    # Python 2 wrote the keys as bytes; people's own copies have text.
    fields = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in batch.items()}
    images, labels = fields.get("data"), fields.get("labels")
    if not isinstance(images, _PickledArray) or not isinstance(labels, list):
        raise DamagedError(f"{name} lacks an array 'data' or a list 'labels'")
    pixels = images.to_bytes(name, columns=3 * 32 * 32)
    if not all(type(label) is int for label in labels) or len(labels) != len(pixels):
        raise DamagedError(f"{name} contains {len(pixels)} images but not as many whole-number labels")
    return pixels.reshape(-1, 3, 32, 32), _labels(name, labels)


class _Inert:
    """Stands for a class that a pickle names: keeps its arguments, and runs no code of numpy's or anyone's."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _PickledArray(_Inert):
    def to_bytes(self, name: str, *, columns: int) -> Images:
        """Return the pixels, uint8 (N, columns), from ndarray's pickled state or _frombuffer's arguments."""
        match (self.state, self.arguments):
            case ((_, tuple(shape), _Inert() as dtype, False | 0, bytes(content)), _):
                pass
            case (None, (bytes(content) | bytearray(content), _Inert() as dtype, tuple(shape), "C")):
                pass
            case _:
                raise DamagedError(f"{name} contains an array that isn't plain bytes in row order")
        if dtype.arguments[:1] not in (("u1",), (b"u1",)) or shape != (len(content) // columns, columns):
            raise DamagedError(f"{name} contains an array of shape {shape}, not (images, {columns}) of bytes")
        if len(content) != shape[0] * columns:
            raise DamagedError(f"{name} contains {len(content)} bytes of images instead of {shape[0] * columns}")
        return np.frombuffer(content, dtype=np.uint8).reshape(shape)


class _PickledBytes(_Inert):
    """Python 3 writes bytes into an old-protocol pickle as a call of _codecs.encode(text, "latin1")."""

    def __new__(cls, *arguments: Any) -> Any:
        text, encoding = arguments
        if encoding != "latin1":
            raise pickle.UnpicklingError(f"bytes in the encoding {encoding!r}")
        return str(text).encode("latin1")


_PICKLED: dict[tuple[str, str], type[_Inert]] = {
    ("numpy", "ndarray"): _Inert,
    ("numpy", "dtype"): _Inert,
    ("_codecs", "encode"): _PickledBytes,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _PickledArray for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _PickledArray for core in ("core", "_core")},
}


class _PlainUnpickler(pickle.Unpickler):  # noqa: TID251 - it finds none but its own classes
    def find_class(self, module: str, name: str) -> type[_Inert]:
        try:
            return _PICKLED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it wants to run {module}.{name}, which no data set needs") from None


def _load_plain_pickle(name: str, content: bytes) -> Any:
    """Unpickle numbers, text, bytes, lists, dictionaries and arrays of bytes; refuse anything else unexecuted."""
    try:
        return _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a damaged pickle fails in any way, from EOFError to MemoryError
        raise DamagedError(f"{name} is not a CIFAR batch: {error or type(error).__name__}") from error
