"""What becomes of a run whose checkpoints can't be written: the last one is insisted upon."""

import errno
import os
import re
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
Refuse = Callable[..., None]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Let the disk refuse, from now on, whatever is written below a folder; none: nothing is refused."""
    refused: list[tuple[Path, int]] = []
    fsync = os.fsync

    def checked(descriptor: int) -> None:
        written = Path(f"/proc/self/fd/{descriptor}").readlink()
        for below, number in refused:
            if written.is_relative_to(below) and written.is_file():
                raise OSError(number, os.strerror(number))
        fsync(descriptor)

    def call(*below: Path, number: int = errno.ENOSPC) -> None:
        refused[:] = [(each, number) for each in below]

    monkeypatch.setattr(files.os, "fsync", checked)
    monkeypatch.setattr(files, "PAUSES", (0.0, 0.0), raising=False)
    return call


@pytest.fixture
def stop_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Send this process SIGTERM in a step."""
    step = loop_module.Loop._step

    def call(number: int) -> None:
        def stopping(self: loop_module.Loop, batches: object) -> torch.Tensor:
            if self.progress.step + 1 == number:
                os.kill(os.getpid(), signal.SIGTERM)
            return step(self, batches)  # type: ignore[arg-type]

        monkeypatch.setattr(loop_module.Loop, "_step", stopping)

    return call


def printed_paths(text: str) -> list[Path]:
    return [Path(word.rstrip(";:,)")) for word in re.findall(r"/\S+", text)]


def assert_all_there(said: str) -> None:
    """A file that is named as written, or as the model, must be there."""
    named = [path for line in said.splitlines() if "model is" in line for path in printed_paths(line)]
    assert all(path.exists() for path in named), named


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("stopped", [False, True])
def test_a_run_that_could_save_nothing_is_no_success(
    train: Train,
    tmp_path: Path,
    refuse: Refuse,
    stop_after: Callable[[int], None],
    capsys: pytest.CaptureFixture[str],
    stopped: bool,
    number: int,
) -> None:
    refuse(tmp_path, number=number)
    if stopped:
        stop_after(2)
    with pytest.raises(UserError, match=r"^the last checkpoint, of step \d, could not be saved: ") as caught:
        train("--max-steps", "5" if stopped else "2")
    message = str(caught.value)
    assert caught.value.exit_code == 4
    assert os.strerror(number) in message and "none was saved before it" in message
    assert str(tmp_path / "run" / "checkpoints") in message and str(tmp_path / "run" / "last-resort") in message
    assert ("needed" in message) == (number in (errno.ENOSPC, errno.EDQUOT))
    assert not records(tmp_path / "run", "done") and not records(tmp_path / "run", "checkpoint")
    assert "the trained model is" not in capsys.readouterr().out


@pytest.mark.parametrize("stopped", [False, True])
def test_a_folder_that_can_not_even_be_listed_makes_it_no_success(
    train: Train,
    tmp_path: Path,
    refuse: Refuse,
    stop_after: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    stopped: bool,
) -> None:
    def unlisted(folder: files.CheckpointFolder) -> list[Path]:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    refuse(tmp_path)
    monkeypatch.setattr(files.CheckpointFolder, "expendable", unlisted)
    stop_after(2 if stopped else 99)
    with pytest.raises(UserError, match=r"^the last checkpoint, of step \d, could not be saved: ") as caught:
        train("--max-steps", "5" if stopped else "2")
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("stopped", [False, True])
def test_the_last_checkpoint_goes_elsewhere_and_is_found_again(
    train: Train,
    tmp_path: Path,
    refuse: Refuse,
    stop_after: Callable[[int], None],
    capsys: pytest.CaptureFixture[str],
    stopped: bool,
) -> None:
    train("--max-steps", "6", "--schedule", "constant", name="undisturbed")
    refuse(tmp_path / "run" / "checkpoints")
    if stopped:
        stop_after(3)
    flags = ["--schedule", "constant"]
    assert train("--max-steps", "6" if stopped else "3", *flags) == (143 if stopped else 0)
    saved = tmp_path / "run" / "last-resort" / "step-00000003.pt"
    assert records(tmp_path / "run", "checkpoint")[-1]["path"] == str(saved) and saved.exists()
    assert "No space left" in records(tmp_path / "run", "warning")[-1]["message"]
    assert_all_there(capsys.readouterr().out)
    refuse()
    stop_after(99)
    assert train("--max-steps", "6", *flags) == 0
    assert records(tmp_path / "run", "resume")[-1]["step"] == 3
    assert train("--max-steps", "7", *flags, "--resume", str(tmp_path / "run"), name="another") == 0
    assert records(tmp_path / "another", "resume")[-1]["step"] == 6
    ours, theirs = (
        torch.load(tmp_path / name / "checkpoints" / "model.pt", weights_only=True) for name in ("run", "undisturbed")
    )
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_misses_are_survived_while_the_next_one_may_succeed(train: Train, tmp_path: Path, refuse: Refuse) -> None:
    refuse(tmp_path / "run" / "checkpoints")
    assert train("--max-steps", "3", "--checkpoint-steps", "1") == 0
    messages = [record["message"] for record in records(tmp_path / "run", "warning")]
    assert sum("checkpoint of step" in message for message in messages) == 2
    assert (tmp_path / "run" / "last-resort" / "step-00000003.pt").exists()


def test_after_too_many_misses_it_is_an_error_while_training_still_goes_on(
    train: Train, tmp_path: Path, refuse: Refuse
) -> None:
    refuse(tmp_path)
    with pytest.raises(
        UserError, match=r"^3 checkpoints in a row, the last one of step 3, could not be saved"
    ) as caught:
        train("--max-steps", "5", "--checkpoint-steps", "1")
    assert caught.value.exit_code == 4


def test_what_was_saved_before_is_named(train: Train, tmp_path: Path, refuse: Refuse) -> None:
    assert train("--max-steps", "2") == 0
    refuse(tmp_path)
    with pytest.raises(UserError, match="the one of step 2 was saved"):
        train("--max-steps", "4")
    refuse()
    assert train("--max-steps", "4") == 0
    assert records(tmp_path / "run", "resume")[-1]["step"] == 2


def test_a_model_file_that_could_not_be_written_is_not_named(
    train: Train, tmp_path: Path, refuse: Refuse, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    refuse(run / "checkpoints" / "model.pt.partial", run / "last-resort" / "model.pt.partial")
    assert train("--max-steps", "1") == 0
    said = capsys.readouterr().out
    assert "done: step 1; the trained model is in the checkpoint only" in said
    refuse(run / "checkpoints" / "model.pt.partial")
    assert train("--max-steps", "1") == 0
    assert f"the trained model is {run / 'last-resort' / 'model.pt'}" in capsys.readouterr().out
