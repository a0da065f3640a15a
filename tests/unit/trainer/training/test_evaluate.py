import copy
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from trainer.data.batches.protocols import Batch
from trainer.data.batches.resident import Resident
from trainer.distributed import world
from trainer.distributed.world import World
from trainer.model.precision import Precision
from trainer.training import evaluate as evaluate_module
from trainer.training.evaluate import Broken, Score, evaluate

CPU = torch.device("cpu")
FP32 = Precision(name="fp32", device_type="cpu")
ALONE = World(rank=0, local_rank=0, world_size=1, nodes=1, device=CPU, backend="gloo", data_group=None)


def _setting(count: int) -> tuple[nn.Module, Resident, float, float]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 1, 4, 4), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, 3, (count,), generator=generator)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    with torch.no_grad():
        logits = model(images / 255)
    loss = nn.functional.cross_entropy(logits, labels).item()
    return (
        model,
        Resident(images, labels, mean=[0.0], std=[1.0], device=CPU),
        loss,
        float((logits.argmax(1) == labels).float().mean()),
    )


@pytest.mark.parametrize("count", [1, 499, 501, 1003])
def test_the_score_is_that_of_all_images(count: int) -> None:
    model, data, loss, accuracy = _setting(count)
    score = evaluate(model, data, ALONE, FP32, limit=None)
    assert score.loss == pytest.approx(loss, rel=1e-5) and score.accuracy == pytest.approx(accuracy)
    assert model.training


class _Meeting:
    """All-reduces of ranks that are threads: each waits for the others."""

    def __init__(self, ranks: int) -> None:
        self._values: list[torch.Tensor] = []
        self._barrier = threading.Barrier(ranks)
        self._lock = threading.Lock()

    def all_reduce(self, values: torch.Tensor, op: object = None, group: object = None) -> None:
        with self._lock:
            self._values.append(values)
        if self._barrier.wait(60) == 0:
            assert len({each.shape for each in self._values}) == 1, "ranks meet for the same thing"
            together = torch.stack(self._values)
            result = together.max(0).values if op is not None else together.sum(0)
            for each in self._values:
                each.copy_(result)
            self._values.clear()
        self._barrier.wait(60)


def _ranks(
    monkeypatch: pytest.MonkeyPatch, count: int, work: Callable[[World], Score | Broken]
) -> list[Score | Broken]:
    monkeypatch.setattr(world.dist, "all_reduce", _Meeting(count).all_reduce)
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, [replace(ALONE, rank=rank, world_size=count) for rank in range(count)]))


@pytest.mark.parametrize("seconds", [0.0, 60.0])
@pytest.mark.parametrize("count", [1, 2, 1003, 1501])
def test_shares_of_any_number_of_ranks_add_up(monkeypatch: pytest.MonkeyPatch, count: int, seconds: float) -> None:
    model, data, loss, accuracy = _setting(count)
    monkeypatch.setattr(evaluate_module, "ROUND", seconds)
    own = [copy.deepcopy((model, data)) for _ in range(3)]  # a rank's batches reuse its memory
    scores = _ranks(monkeypatch, 3, lambda rank: evaluate(*own[rank.rank], rank, FP32, limit=None))
    assert all(isinstance(score, Score) for score in scores) and len(set(scores)) == 1
    assert scores[0] == Score(loss=pytest.approx(loss, rel=1e-5), accuracy=pytest.approx(accuracy))


@dataclass
class _Counted:
    """Batches of an evaluation, counted; closed or not."""

    data: Resident
    taken: int = 0
    closed: bool = False

    def __len__(self) -> int:
        return len(self.data)

    def share(self, rank: int, world_size: int, count: int) -> Iterator[Batch]:
        try:
            for batch in self.data.share(rank, world_size, count):
                self.taken += 1
                yield batch
        finally:
            self.closed = True


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_stop_on_one_rank_ends_the_evaluation_of_all(monkeypatch: pytest.MonkeyPatch, ranks: int) -> None:
    model, data, _, _ = _setting(500 * 30)
    monkeypatch.setattr(evaluate_module, "ROUND", 0.0)
    counted = [_Counted(copy.deepcopy(data)) for _ in range(ranks)]
    models = [copy.deepcopy(model) for _ in range(ranks)]

    def work(rank: World) -> Score | Broken:
        def stop() -> int:
            return 15 if rank.rank == ranks - 1 and counted[rank.rank].taken >= 2 else 0

        return evaluate(models[rank.rank], counted[rank.rank], rank, FP32, limit=None, stop=stop)

    assert _ranks(monkeypatch, ranks, work) == [Broken(signal=15)] * ranks
    assert [each.taken for each in counted] == [2] * ranks
    assert all(each.closed for each in counted) and all(each.training for each in models)


def test_a_stop_before_it_ends_it_before_the_first_batch() -> None:
    model, data, _, _ = _setting(1003)
    counted = _Counted(data)
    assert evaluate(model, counted, ALONE, FP32, limit=None, stop=lambda: 2) == Broken(signal=2)
    assert counted.taken == 0


def test_what_is_whole_when_the_stop_comes_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data, loss, _ = _setting(1003)
    counted = _Counted(data)
    stop = lambda: 15 if counted.closed else 0  # noqa: E731
    score = evaluate(model, counted, ALONE, FP32, limit=None, stop=stop)
    assert isinstance(score, Score) and score.loss == pytest.approx(loss, rel=1e-5)


def test_the_limit_takes_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data, _, _ = _setting(50)
    limited = evaluate(model, data, ALONE, FP32, limit=20)
    taken = torch.cat([labels for _, labels in data.share(0, 1, 20)])
    assert len(taken) == 20
    monkeypatch.setattr(Resident, "__len__", lambda self: 20)
    assert limited == evaluate(model, data, ALONE, FP32, limit=None)


def test_both_sides_of_an_image_count_where_it_is_asked_for() -> None:
    model, data, _, _ = _setting(40)
    plain = evaluate(model, data, ALONE, FP32, limit=None)
    both = evaluate(model, data, ALONE, FP32, limit=None, augmentation="flip")

    class Symmetric(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = (model(images) + model(images.flip(-1))) / 2
            return logits

    same = evaluate(Symmetric(), data, ALONE, FP32, limit=None)
    assert both.loss == pytest.approx(same.loss) and both.accuracy == same.accuracy and both.loss != plain.loss
