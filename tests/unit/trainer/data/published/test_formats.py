"""Damaged, foreign and hostile files in the data sets' own formats."""

import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from trainer.data.published.catalog import CATALOG
from trainer.data.published.formats import DamagedError

parse_fashion_mnist, parse_cifar10 = CATALOG["fashion-mnist"].parse, CATALOG["cifar10"].parse
GENERATOR = np.random.default_rng(0)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def idx_files(train: int = 20, test: int = 10) -> dict[str, bytes]:
    files = {}
    for prefix, count in (("train", train), ("t10k", test)):
        files[f"{prefix}-images-idx3-ubyte"] = idx(GENERATOR.integers(0, 256, (count, 28, 28)))
        files[f"{prefix}-labels-idx1-ubyte"] = idx(np.arange(count) % 10)
    return files


def python2_batch(pixels: np.ndarray, labels: list[int]) -> bytes:
    """A batch as Python 2 and numpy 1 pickled the published ones: byte strings, an array by _reconstruct and state."""

    def text(value: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(value)) + value

    def integer(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(" + integer(0) + b"t" + text(b"b") + b"tR"
    dtype = b"cnumpy\ndtype\n(" + text(b"u1") + integer(0) + integer(1) + b"tR"
    dtype += b"(" + integer(3) + text(b"|") + b"NNN" + integer(-1) + integer(-1) + integer(0) + b"tb"
    shape = b"(" + b"".join(map(integer, pixels.shape)) + b"t"
    array += b"(" + integer(1) + shape + dtype + b"I00\n" + text(pixels.tobytes()) + b"tb"
    listed = b"(" + b"".join(map(integer, labels)) + b"l"
    return b"\x80\x02(" + text(b"data") + array + text(b"labels") + listed + b"d."


def cifar_pixels(count: int = 10) -> np.ndarray:
    return GENERATOR.integers(0, 256, (count, 3072), dtype=np.uint8)


def cifar_files(make: Callable[[np.ndarray, list[int]], bytes] = python2_batch) -> dict[str, bytes]:
    return {name: make(cifar_pixels(), list(range(10))) for name in CATALOG["cifar10"].files}


def test_idx_images_and_labels_come_out_as_written() -> None:
    images, labels = GENERATOR.integers(0, 256, (3, 28, 28), dtype=np.uint8), np.array([9, 0, 4])
    arrays = parse_fashion_mnist(
        idx_files() | {"t10k-images-idx3-ubyte": idx(images), "t10k-labels-idx1-ubyte": idx(labels)}
    )
    assert np.array_equal(arrays.test_images, images[:, None])
    assert arrays.test_labels.tolist() == [9, 0, 4]
    assert arrays.test_labels.dtype == np.int64
    assert arrays.train_images.shape == (20, 1, 28, 28)


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("train-images-idx3-ubyte", b"", "not an IDX file"),
        ("train-images-idx3-ubyte", b"<html>no such page</html>", "not an IDX file"),
        ("train-images-idx3-ubyte", idx(np.zeros((20, 28, 28)))[:-1], "promises"),
        ("train-images-idx3-ubyte", idx(np.zeros((20, 28, 28))) + b"\0", "promises"),
        ("train-images-idx3-ubyte", struct.pack(">4B3I", 0, 0, 8, 3, *[2**32 - 1] * 3), "promises"),
        ("train-images-idx3-ubyte", idx(np.zeros((20, 32, 32))), "32x32"),
        ("train-images-idx3-ubyte", idx(np.zeros((19, 28, 28))), "19 images"),
        ("t10k-labels-idx1-ubyte", idx(np.full(10, 10)), "labels outside 0 to 9"),
        ("t10k-labels-idx1-ubyte", idx(np.zeros((10, 1))), "not an IDX file"),
        ("t10k-labels-idx1-ubyte", idx(np.zeros(0)), "no list of labels"),
    ],
)
def test_a_damaged_idx_file_is_named(file: str, content: bytes, complaint: str) -> None:
    with pytest.raises(DamagedError, match=rf"{file}.*{complaint}|{complaint}.*{file}"):
        parse_fashion_mnist(idx_files() | {file: content})


def python3_batch(protocol: int, key: Callable[[str], object]) -> Callable[[np.ndarray, list[int]], bytes]:
    return lambda pixels, labels: pickle.dumps({key("data"): pixels, key("labels"): labels}, protocol=protocol)


@pytest.mark.parametrize("key", [str, str.encode])
@pytest.mark.parametrize("protocol", range(6))
def test_batches_of_every_pickle_protocol_are_read(protocol: int, key: Callable[[str], object]) -> None:
    pixels = cifar_pixels()
    arrays = parse_cifar10(cifar_files() | {"test_batch": python3_batch(protocol, key)(pixels, [3] * 10)})
    assert np.array_equal(arrays.test_images, pixels.reshape(-1, 3, 32, 32))
    assert arrays.test_labels.tolist() == [3] * 10
    assert arrays.train_images.shape == (50, 3, 32, 32)


def test_the_published_form_is_read_as_torchvision_reads_it() -> None:
    pixels = cifar_pixels()
    content = python2_batch(pixels, [5] * 10)
    assert np.array_equal(pickle.loads(content, encoding="latin1")["data"], pixels)  # noqa: S301 - made above
    arrays = parse_cifar10(cifar_files() | {"test_batch": content})
    assert np.array_equal(arrays.test_images.reshape(-1, 3072), pixels)
    assert arrays.test_labels.tolist() == [5] * 10


class Hostile:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.target,))


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_runs_code_is_refused_and_not_run(protocol: int, tmp_path: Path) -> None:
    content = pickle.dumps({"data": cifar_pixels(), "labels": Hostile(tmp_path / "ran")}, protocol=protocol)
    with pytest.raises(DamagedError, match=r"test_batch.*wants to run"):
        parse_cifar10(cifar_files() | {"test_batch": content})
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cos\nsystem\n(S'touch ran'\ntR.",
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cbuiltins\ngetattr\n.",
        b"c_codecs\nencode\n(Vx\nVzlib_codec\ntR.",  # an allowed name with another use
        b"\x80\x04\x8c\x05numpy\x8c\x0dndarray.dumps\x93.",  # a dotted path from an allowed class
        b"(S'persistent'\nQ.",
    ],
)
def test_opcodes_of_known_attacks_are_refused(content: bytes) -> None:
    with pytest.raises(DamagedError, match="test_batch is not a CIFAR batch"):
        parse_cifar10(cifar_files() | {"test_batch": content})


@pytest.mark.parametrize(
    "batch",
    [
        [1, 2],
        {"data": cifar_pixels()},
        {"data": cifar_pixels(), "labels": [10] * 10},
        {"data": cifar_pixels(), "labels": [-1] * 10},
        {"data": cifar_pixels(), "labels": ["0"] * 10},
        {"data": cifar_pixels(), "labels": [1] * 9},
        {"data": cifar_pixels()[:, :-1], "labels": [1] * 10},
        {"data": np.asfortranarray(cifar_pixels()), "labels": [1] * 10},
        {"data": cifar_pixels().astype(np.float32), "labels": [1] * 10},
        {"data": cifar_pixels().astype(object), "labels": [1] * 10},
        {"data": cifar_pixels(0), "labels": []},
    ],
)
def test_a_batch_of_another_shape_is_refused(batch: object) -> None:
    with pytest.raises(DamagedError, match="test_batch"):
        parse_cifar10(cifar_files() | {"test_batch": pickle.dumps(batch)})


def test_a_batch_cut_anywhere_is_refused() -> None:
    whole = python2_batch(cifar_pixels(2), [0, 1])
    for length in (0, 1, 50, len(whole) // 2, len(whole) - 1):
        with pytest.raises(DamagedError, match="test_batch"):
            parse_cifar10(cifar_files() | {"test_batch": whole[:length]})
