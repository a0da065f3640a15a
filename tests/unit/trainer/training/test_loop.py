import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.support.metrics import records
from trainer.checkpoint import files
from trainer.errors import UserError
from trainer.training import loop as loop_module

Train = Callable[..., int]


def parameters(run: Path) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = torch.load(run / "checkpoints" / "model.pt", weights_only=True)
    return state


def assert_same(one: Path, other: Path, **tolerance: float) -> None:
    torch.testing.assert_close(parameters(one), parameters(other), **tolerance)


def test_the_records_are_complete(train: Train, tmp_path: Path) -> None:
    assert train("--epochs", "2", "--eval-steps", "3") == 0
    run = tmp_path / "run"
    steps = [record for record in records(run, "step") if "loss" in record]
    assert (steps[0]["step"], steps[-1]["step"]) == (1, 16)
    assert {"epoch", "loss", "lr", "images_per_s", "total_steps", "time_s", "at"} <= set(steps[0])
    assert [(record["epoch"], record["step"]) for record in records(run, "epoch")] == [(1, 8), (2, 16)]
    assert all(0 <= record["test_accuracy"] <= 1 and record["seconds"] > 0 for record in records(run, "epoch"))
    evaluated = [record["step"] for record in records(run, "step") if "test_loss" in record]
    assert evaluated == [3, 6, 9, 12, 15]
    assert records(run, "done")[0]["step"] == 16


def test_the_run_can_be_repeated(train: Train, tmp_path: Path) -> None:
    for name in ("one", "two"):
        train("--max-steps", "5", "--deterministic", name=name)
    train("--max-steps", "5", "--seed", "1", name="three")
    torch.use_deterministic_algorithms(False)
    assert_same(tmp_path / "one", tmp_path / "two", rtol=0, atol=0)
    with pytest.raises(AssertionError):
        assert_same(tmp_path / "one", tmp_path / "three")


def test_accumulation_is_the_same_step_in_parts(train: Train, tmp_path: Path) -> None:
    train("--max-steps", "5", "--lr", "0.02", name="whole")
    train("--max-steps", "5", "--lr", "0.02", "--accumulate", "4", name="parts")
    assert_same(tmp_path / "whole", tmp_path / "parts", rtol=1e-4, atol=1e-5)


def test_clipping_bounds_the_update(train: Train, tmp_path: Path) -> None:
    flags = ["--max-steps", "1", "--momentum", "0", "--weight-decay", "0", "--schedule", "constant", "--warmup", "0"]
    train(*flags, "--lr", "1e-9", name="start")
    train(*flags, "--lr", "1", "--clip-norm", "0.01", name="clipped")
    start, clipped = parameters(tmp_path / "start"), parameters(tmp_path / "clipped")
    squares = sum(((clipped[name] - start[name]) ** 2).sum().item() for name in start)
    assert squares**0.5 == pytest.approx(0.01, rel=1e-2)


@pytest.mark.parametrize("stop_after", [1, 8, 11])
def test_a_signal_stops_at_once_and_resuming_changes_nothing(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_after: int
) -> None:
    train("--epochs", "2", name="undisturbed")
    step = loop_module.Loop._step

    def stopping(self: loop_module.Loop, indices: torch.Tensor) -> torch.Tensor:
        if self.progress.step + 1 == stop_after:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self, indices)

    with monkeypatch.context() as patched:
        patched.setattr(loop_module.Loop, "_step", stopping)
        assert train("--epochs", "2") == 128 + signal.SIGTERM
    run = tmp_path / "run"
    assert records(run, "stopped")[0]["step"] == stop_after
    assert (run / "checkpoints" / f"step-{stop_after:08d}.pt").exists()
    assert train("--epochs", "2") == 0
    assert records(run, "resume")[0]["step"] == stop_after
    assert_same(tmp_path / "undisturbed", run, rtol=0, atol=0)
    assert [record["epoch"] for record in records(run, "epoch")] == [1, 2]


def _full(descriptor: int) -> None:
    raise OSError(28, "No space left on device")


def test_a_full_disk_is_survived_for_a_while(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.os, "fsync", _full)
    assert train("--max-steps", "2", "--checkpoint-steps", "1") == 0
    assert len(records(tmp_path / "run", "warning")) == 2
    with pytest.raises(UserError, match="3 checkpoints in a row") as caught:
        train("--max-steps", "5", "--checkpoint-steps", "1", name="longer")
    assert caught.value.exit_code == 4


def test_none_starts_afresh_and_keeps_the_old(train: Train, tmp_path: Path) -> None:
    train("--max-steps", "2", "--checkpoint-steps", "1")
    train("--max-steps", "1", "--resume", "none")
    run = tmp_path / "run"
    assert not records(run, "resume")
    assert [path.name for path in (run / "checkpoints").glob("step-*.pt")] == ["step-00000001.pt"]
    assert len(list((run / "checkpoints").glob("*.old"))) == 4


def test_resume_from_another_run(train: Train, tmp_path: Path) -> None:
    train("--max-steps", "4", name="old")
    train("--max-steps", "8", "--resume", str(tmp_path / "old"), name="new")
    train("--max-steps", "8", "--resume", str(tmp_path / "old" / "checkpoints" / "step-00000004.pt"), name="newer")
    for name in ("new", "newer"):
        assert records(tmp_path / name, "resume")[0]["step"] == 4
    assert_same(tmp_path / "new", tmp_path / "newer", rtol=0, atol=0)
    with pytest.raises(UserError, match="no checkpoint") as caught:
        train("--resume", str(tmp_path), name="nothing")
    assert caught.value.exit_code == 2


def test_another_global_batch_goes_on_as_many_images_later(train: Train, tmp_path: Path) -> None:
    train("--max-steps", "6", name="old")
    train("--epochs", "1", "--batch-size", "1000", "--resume", str(tmp_path / "old"), name="new")
    assert records(tmp_path / "new", "resume")[0]["step"] == 6 * 512 // 1000


def test_nothing_left_to_train_is_fine(train: Train, tmp_path: Path) -> None:
    assert train("--epochs", "1") == train("--epochs", "1") == 0
    assert records(tmp_path / "run", "done")[-1]["step"] == 8


def test_fewer_images_than_a_batch(train: Train) -> None:
    with pytest.raises(UserError, match="--batch-size") as caught:
        train("--batch-size", "5000")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "flags", [["--model", "small-cnn", "--precision", "bf16", "--no-channels-last"], ["--optimizer=adamw"]]
)
def test_the_other_ways_to_train_learn_too(train: Train, tmp_path: Path, flags: list[str]) -> None:
    assert train("--epochs", "4", "--batch-size", "128", *flags) == 0
    losses = [record["loss"] for record in records(tmp_path / "run", "epoch")]
    assert losses[-1] < 0.5 * losses[0]
