import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def evaluated(run: Path) -> list[dict[str, Any]]:
    return [record for kind in ("step", "epoch") for record in records(run, kind) if "test_accuracy" in record]


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


@pytest.mark.parametrize(("nth", "step"), [(1, 3), (3, 8), (7, 16)])
def test_a_signal_breaks_an_evaluation_off_and_resuming_makes_up_for_it(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int, step: int
) -> None:
    flags = ["--epochs", "2", "--eval-steps", "3"]
    train(*flags, name="undisturbed")
    evaluate, calls = loop_module.evaluate, [0]

    def stopping(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == nth:
            os.kill(os.getpid(), signal.SIGTERM)
        return evaluate(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(loop_module, "evaluate", stopping)
        assert train(*flags) == 128 + signal.SIGTERM
    run = tmp_path / "run"
    assert records(run, "stopped")[0]["step"] == step and not records(run, "done")
    saved = run / "checkpoints" / f"step-{step:08d}.pt"
    content = saved.stat()
    assert step not in [record["step"] for record in evaluated(run)], "a half evaluation is no figure"
    assert train(*flags) == 0
    assert records(run, "resume")[0]["step"] == step
    if saved.exists():  # what may be the only valid one is never written anew, only rated
        assert (saved.stat().st_ino, saved.stat().st_mtime_ns) == (content.st_ino, content.st_mtime_ns)
    assert_same(tmp_path / "undisturbed", run, rtol=0, atol=0)
    names = ("step", "test_loss", "test_accuracy")
    ours, theirs = (
        sorted([record[name] for name in names] for record in evaluated(each))
        for each in (run, tmp_path / "undisturbed")
    )
    assert ours == theirs
    assert [record["epoch"] for record in records(run, "epoch")] == [1, 2]
    manifests = [json.loads(path.read_text()) for path in (run / "checkpoints").glob("step-*.json")]
    assert max(each["test_accuracy"] or 0 for each in manifests) == max(
        record["test_accuracy"] for record in evaluated(run)
    )


def test_a_stop_in_the_evaluation_after_a_resume_from_elsewhere_leaves_a_checkpoint(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train("--max-steps", "4", "--checkpoint-steps", "3", name="old")
    evaluate = loop_module.evaluate

    def stopping(*arguments: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return evaluate(*arguments, **options)

    flags = ["--max-steps", "6", "--eval-steps", "3"]
    old = tmp_path / "old" / "checkpoints" / "step-00000003.pt"
    with monkeypatch.context() as patched:
        patched.setattr(loop_module, "evaluate", stopping)
        assert train(*flags, "--resume", str(old)) == 128 + signal.SIGTERM
    assert train(*flags) == 0
    assert [record["step"] for record in records(tmp_path / "run", "resume")] == [3, 3]


def test_an_evaluation_that_is_whole_is_not_repeated(train: Train, tmp_path: Path) -> None:
    train("--max-steps", "4")
    train("--max-steps", "4")
    assert len(evaluated(tmp_path / "run")) == 1


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


def test_a_checkpoint_that_cannot_be_read_ends_the_run_and_stays(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train("--max-steps", "2", "--checkpoint-steps", "1", name="old")
    folder = tmp_path / "old" / "checkpoints"
    names = sorted(path.name for path in folder.iterdir())
    original = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.suffix == ".pt":
            raise OSError(116, "Stale file handle")
        return original(path)

    monkeypatch.setattr(files, "PAUSES", (0.0,))
    newest = folder / "step-00000002.pt"
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", refuse)
        for flags in (["--resume", str(newest)], ["--resume", str(folder)]):
            with pytest.raises(UserError, match="can't be read: Stale file handle") as caught:
                train("--max-steps", "3", *flags, name="new")
            assert caught.value.exit_code == 4
        with pytest.raises(UserError, match="can't be read: Stale file handle"):
            train("--max-steps", "3", name="old")
    assert sorted(path.name for path in folder.iterdir()) == names
    (folder / "step-00000009.pt").touch()
    with pytest.raises(UserError, match=r"there is no .*step-00000009\.json") as caught:
        train("--resume", str(folder / "step-00000009.pt"), name="new")
    assert caught.value.exit_code == 2


def test_another_global_batch_goes_on_as_many_images_later(train: Train, tmp_path: Path) -> None:
    train("--max-steps", "6", name="old")
    train("--epochs", "1", "--batch-size", "1000", "--resume", str(tmp_path / "old"), name="new")
    assert records(tmp_path / "new", "resume")[0]["step"] == 6 * 512 // 1000


def test_another_global_batch_in_the_same_folder_loses_no_step(train: Train, tmp_path: Path) -> None:
    train("--max-steps", "6", "--batch-size", "256")
    train("--max-steps", "5", "--batch-size", "512")
    assert records(tmp_path / "run", "resume")[0]["step"] == 3
    train("--max-steps", "8", "--batch-size", "512")
    assert records(tmp_path / "run", "resume")[1]["step"] == 5


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
