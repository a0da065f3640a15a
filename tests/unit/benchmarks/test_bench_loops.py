"""The reference loops train what the trainer trains, and the bare loop is the trainer's step."""

from collections.abc import Iterator

import pytest
import torch

from benchmarks import naive
from benchmarks.compute import PARTS, Setting
from benchmarks.compute_child import Child
from benchmarks.naive import GOOD_PRACTICE, NAIVE, Reference
from trainer.model import models


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def batch(count: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 1, 28, 28, generator=generator), torch.randint(10, (count,), generator=generator)


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU good practice computes in fp16")
def test_both_references_compute_the_same_steps() -> None:
    trained = []
    for make in (naive.naive_step, naive.good_step):
        torch.manual_seed(0)
        model = models.build("small-cnn", channels=1, size=28, classes=10)
        step = make(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), torch.device("cpu"))
        for _ in range(2):
            step(*batch())
        trained.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    torch.testing.assert_close(*trained, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("way", [NAIVE, GOOD_PRACTICE])
def test_a_reference_ends_where_it_is_to_stop(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naive, "loaders", lambda _reference: ([batch()], [batch(7), batch(3)]))
    assert len(list(naive.epochs(Reference(way=way, epochs=3)))) == 3
    ended = list(naive.epochs(Reference(way=way, epochs=3, stop_at=0.0)))
    assert len(ended) == 1
    assert ended[0]["test_accuracy"] * 10 == pytest.approx(round(ended[0]["test_accuracy"] * 10))


def test_the_bare_loop_trains_and_tells_its_parts() -> None:
    flags = ("--dataset", "synthetic", "--model", "tutorial-cnn", "--batch-size", "512")
    child = Child(Setting(flags=flags, kept_memory=False, threads=1))
    before = child.loss()
    assert child.count(0) == 8
    assert child.seconds(16) > 0
    assert child.loss() < before
    assert tuple(child.parts(2)) == PARTS
    shares = [share for _, share, _ in child.operators(2)]
    assert shares == sorted(shares, reverse=True)
    assert 0.5 < sum(shares) <= 1
