"""The user's own copy of a published data set."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from torchvision.datasets import CIFAR10

from tests.support.published import cifar_archive, cifar_files, ensure, idx_files, refused, snapshot, write, zipped
from trainer.data.published import fetch
from trainer.data.published.catalog import CATALOG

pytestmark = pytest.mark.usefixtures("closed_world")


@pytest.mark.parametrize("layout", ["", "FashionMNIST/raw", "raw", "usr/share/datasets/fashion-mnist", "data/fashion"])
@pytest.mark.parametrize("packed", [False, True])
def test_an_own_fashion_mnist_is_found_in_the_usual_layouts(tmp_path: Path, layout: str, packed: bool) -> None:
    own = tmp_path / "own"
    write(own / layout, zipped(idx_files()) if packed else idx_files())
    before = snapshot(own)
    said = ensure("fashion-mnist", tmp_path / "data", own)
    assert [line for line in said if "not the published" in line], "foreign data must be said aloud"
    stored = fetch.obtain("fashion-mnist", data_dir=tmp_path / "data", own_copy=own, say=print)
    assert stored.arrays.train_images.tobytes() == idx_files()["train-images-idx3-ubyte"][16:]
    assert snapshot(own) == before


@pytest.mark.parametrize("form", ["archive", "archive's folder", "folder", "parent"])
def test_an_own_cifar10_is_found_in_the_usual_forms(tmp_path: Path, form: str) -> None:
    own = tmp_path / "own"
    if form.startswith("archive"):
        write(own, {CIFAR10.filename: cifar_archive()})
    else:
        write(own / CIFAR10.base_folder, cifar_files())
    place = {"archive": own / CIFAR10.filename, "folder": own / CIFAR10.base_folder}.get(form, own)
    before = snapshot(own)
    assert "not the published" in ensure("cifar10", tmp_path / "data", place)[-1]
    stored = fetch.obtain("cifar10", data_dir=tmp_path / "data", own_copy=place, say=print)
    assert stored.arrays.train_images.shape == (20, 3, 32, 32)
    assert len(stored.mean) == len(stored.std) == 3
    assert snapshot(own) == before


def test_a_changed_own_copy_is_read_anew_and_an_unchanged_one_is_not(tmp_path: Path) -> None:
    own = write(tmp_path / "own", idx_files())
    ensure("fashion-mnist", tmp_path / "data", own)
    first = snapshot(tmp_path / "data")
    ensure("fashion-mnist", tmp_path / "data", own)
    assert snapshot(tmp_path / "data") == first
    labels = own / "train-labels-idx1-ubyte"
    labels.write_bytes(labels.read_bytes()[:8] + bytes(200))
    stored = fetch.obtain("fashion-mnist", data_dir=tmp_path / "data", own_copy=own, say=print)
    assert not stored.arrays.train_labels.any()


def test_an_own_copy_that_changed_with_its_time_kept_is_read_anew(tmp_path: Path) -> None:
    own = write(tmp_path / "own", idx_files())
    ensure("fashion-mnist", tmp_path / "data", own)
    labels = own / "train-labels-idx1-ubyte"
    was = labels.stat()
    labels.write_bytes(labels.read_bytes()[:8] + bytes(200))
    os.utime(labels, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert (labels.stat().st_size, labels.stat().st_mtime_ns) == (was.st_size, was.st_mtime_ns)
    stored = fetch.obtain("fashion-mnist", data_dir=tmp_path / "data", own_copy=own, say=print)
    assert not stored.arrays.train_labels.any()


def test_a_missing_own_copy_is_an_error(tmp_path: Path) -> None:
    assert "no such file" in refused("fashion-mnist", tmp_path / "data", tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "train-images-idx3-ubyte" in refused("fashion-mnist", tmp_path / "data", tmp_path / "empty")
    assert "data_batch_1" in refused("cifar10", tmp_path / "data", tmp_path / "empty")


def test_an_own_copy_of_the_published_size_with_other_checksums_is_damaged_unless_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = write(tmp_path / "own", idx_files())
    monkeypatch.setitem(CATALOG, "fashion-mnist", replace(CATALOG["fashion-mnist"], images=(200, 100)))
    message = refused("fashion-mnist", tmp_path / "data", own)
    assert "other checksums" in message and "--other-data" in message and "(3)" in message
    fetch.ensure("fashion-mnist", data_dir=tmp_path / "data", own_copy=own, say=lambda line: None, other_data=True)
    assert fetch.obtain("fashion-mnist", data_dir=tmp_path / "data", own_copy=own, say=lambda line: None)


def test_an_own_copy_that_lacks_a_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    own = write(tmp_path / "own", idx_files())
    (own / "t10k-labels-idx1-ubyte").unlink()
    assert "lacks t10k-labels-idx1-ubyte" in refused("fashion-mnist", tmp_path / "data", own)


@pytest.mark.parametrize("place", [5, 500, -6, -1])
@pytest.mark.parametrize("file", ["train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"])
def test_an_own_gz_with_a_cut_or_a_flipped_bit_is_an_error_that_names_it(tmp_path: Path, file: str, place: int) -> None:
    own = write(tmp_path / "own", zipped(idx_files()))
    whole = (own / file).read_bytes()
    place %= len(whole)
    (own / file).write_bytes(whole[:place])
    assert file in refused("fashion-mnist", tmp_path / "data", own)
    if place > 10:  # before that lie gzip's flags and time, which carry no data
        (own / file).write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        assert file in refused("fashion-mnist", tmp_path / "data", own)
    assert not list((tmp_path / "data").rglob("*ubyte*"))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_an_own_cifar_archive_that_is_cut_or_flipped_is_an_error(tmp_path: Path, share: float) -> None:
    whole = cifar_archive()
    place = int(len(whole) * share)
    own = tmp_path / "cifar.tar.gz"
    own.write_bytes(whole[:place])
    assert "cifar.tar.gz" in refused("cifar10", tmp_path / "data", own)
    own.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
    assert "cifar.tar.gz" in refused("cifar10", tmp_path / "data", own)


def test_an_own_cifar_batch_that_runs_code_is_refused(tmp_path: Path) -> None:
    own = write(tmp_path / "own", cifar_files())
    target = tmp_path / "ran"
    (own / "data_batch_3").write_bytes(b"cos\nsystem\n(S'touch " + os.fsencode(target) + b"'\ntR.")
    assert "data_batch_3" in refused("cifar10", tmp_path / "data", own)
    assert not target.exists()


def test_the_synthetic_set_needs_nothing_and_says_so(tmp_path: Path) -> None:
    assert ensure("synthetic", tmp_path / "data") == []
    assert "not used" in ensure("synthetic", tmp_path / "data", tmp_path)[0]
    assert not (tmp_path / "data").exists()
