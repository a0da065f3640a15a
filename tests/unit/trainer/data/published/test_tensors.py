"""Data sets as tensors."""

import struct
from pathlib import Path

import pytest
import torch

from trainer.data.published.tensors import Dataset, load


def synthetic(seed: int = 0) -> Dataset:
    return load("synthetic", data_dir=Path("/nowhere"), own_copy=None, seed=seed, say=print)


def test_the_synthetic_set_depends_on_the_seed_alone() -> None:
    first, again, other = synthetic(1), synthetic(1), synthetic(2)
    assert torch.equal(first.train_images, again.train_images)
    assert torch.equal(first.test_labels, again.test_labels)
    assert not torch.equal(first.train_images, other.train_images)


def test_the_synthetic_set_has_the_form_of_a_real_one() -> None:
    dataset = synthetic()
    assert dataset.train_images.shape == (4096, 1, 28, 28)
    assert dataset.test_images.shape == (1024, 1, 28, 28)
    assert dataset.train_images.dtype == torch.uint8
    assert dataset.train_labels.dtype == torch.int64
    assert set(dataset.train_labels.tolist()) == set(range(dataset.classes))
    assert dataset.mean == pytest.approx(((dataset.train_images.double() / 255).mean().item(),))
    assert 0 < dataset.std[0] < 0.5


def test_the_synthetic_set_can_be_learned_but_not_by_a_linear_model_alone() -> None:
    dataset = synthetic()
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        network = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 5, stride=2), torch.nn.ReLU(), torch.nn.Conv2d(8, 32, 5, stride=2), torch.nn.ReLU(),
            torch.nn.AdaptiveMaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(128, 10),
        )  # fmt: skip
        accuracies = [_accuracy_after_training(model, dataset) for model in (network, _linear())]
    finally:
        torch.set_num_threads(threads)
    assert accuracies[0] > 0.9
    assert accuracies[1] < accuracies[0]


def _linear() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))


def _accuracy_after_training(model: torch.nn.Module, dataset: Dataset) -> float:
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    train, test = dataset.train_images.float() / 64 - 2, dataset.test_images.float() / 64 - 2
    for _ in range(3):
        for start in range(0, len(train), 64):
            optimizer.zero_grad()
            labels = dataset.train_labels[start : start + 64]
            torch.nn.functional.cross_entropy(model(train[start : start + 64]), labels).backward()
            optimizer.step()
    return (model(test).argmax(1) == dataset.test_labels).float().mean().item()


def test_idx_files_load_as_torchvision_loads_them(tmp_path: Path) -> None:
    from torchvision.datasets import FashionMNIST

    raw = tmp_path / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    generator = torch.Generator().manual_seed(0)
    for prefix, count in (("train", 50), ("t10k", 30)):
        images = torch.randint(0, 256, (count * 784,), generator=generator).tolist()
        labels = torch.randint(0, 10, (count,), generator=generator).tolist()
        (raw / f"{prefix}-images-idx3-ubyte").write_bytes(
            struct.pack(">4B3I", 0, 0, 8, 3, count, 28, 28) + bytes(images)
        )
        (raw / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, count) + bytes(labels))
    ours = load("fashion-mnist", data_dir=tmp_path / "data", own_copy=tmp_path, seed=0, say=print)
    for theirs, images, labels in (
        (FashionMNIST(tmp_path, train=True), ours.train_images, ours.train_labels),
        (FashionMNIST(tmp_path, train=False), ours.test_images, ours.test_labels),
    ):
        assert torch.equal(images[:, 0], theirs.data)
        assert torch.equal(labels, theirs.targets)
        assert (images.dtype, labels.dtype) == (theirs.data.dtype, theirs.targets.dtype)
    pixels = ours.train_images.double() / 255
    assert ours.mean == pytest.approx((pixels.mean().item(),), abs=1e-12)
    assert ours.std == pytest.approx((pixels.std(correction=0).item(),), abs=1e-12)
