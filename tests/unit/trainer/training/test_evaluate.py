from dataclasses import replace

import pytest
import torch
from torch import nn

from trainer.data.batches.resident import Resident
from trainer.distributed import world
from trainer.distributed.world import World
from trainer.model.precision import Precision
from trainer.training.evaluate import evaluate

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


def test_shares_of_any_number_of_ranks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data, loss, accuracy = _setting(1003)
    shares: list[torch.Tensor] = []
    monkeypatch.setattr(world.dist, "all_reduce", lambda values, group: shares.append(values.clone()))
    for rank in range(3):
        evaluate(model, data, replace(ALONE, rank=rank, world_size=3), FP32, limit=None)
    total = (sum(shares, torch.zeros(2, dtype=torch.float64)) / 1003).tolist()
    assert total == [pytest.approx(loss, rel=1e-5), pytest.approx(accuracy)]


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
