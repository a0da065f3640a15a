"""What the GPU's measurement says where there is none."""

import pytest
import torch

from benchmarks import gpu


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without GPU")
def test_without_a_gpu_nothing_is_measured_and_nothing_estimated() -> None:
    result = gpu.measure(quick=True)
    assert len(result.rows) == 6
    assert {(row.values, row.note) for row in result.rows} == {((), "not measured yet: no GPU here")}
    assert {ratio.value for ratio in result.ratios} == {None}


def test_with_one_rows_ratios_and_what_was_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = {"cifar": (9e4,), "resnet": (2900.0,), "compiled": (3100.0,), "plain": (80.0,), "wrapped": (80.4,)}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu, "_recipe", lambda _repetitions: {"recipe": ()})
    monkeypatch.setattr(gpu, "_steps", lambda _repetitions: steps)
    result = gpu.measure(quick=True)
    assert result.rows[0].note == "not every seed reaches 94%"
    assert [row.note for row in result.rows[1:]] == [""] * 5
    reached, rate, cost = (ratio.value for ratio in result.ratios)
    assert (reached, rate) == (None, 3100.0)
    assert cost == pytest.approx(0.005)


def test_what_failed_is_no_failure_of_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(gpu, "_recipe", lambda _repetitions: {"recipe": (2.5,)})
    monkeypatch.setattr(gpu, "_steps", lambda _repetitions: {"resnet": (), "plain": (80.0,), "wrapped": ()})
    result = gpu.measure(quick=True)
    assert [ratio.value for ratio in result.ratios] == [2.5, None, None]
    assert "failed" in result.rows[2].note


def test_the_recipes_step_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    from trainer.model import models

    torch.manual_seed(0)
    model = models.build("tutorial-cnn", channels=3, size=32, classes=10)
    monkeypatch.setattr(gpu, "_model", lambda *_words: model)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    step = gpu.recipe_step("cifar10", "cpu")
    for _ in range(2):
        step(torch.randn(8, 3, 32, 32), torch.arange(8))
    assert not all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    assert all(parameter.isfinite().all() for parameter in model.parameters())
