import json
from pathlib import Path

import pytest

from tests.support.made_folder import fill
from trainer.bench import input_pipeline
from trainer.bench.made_images import COPIES, make_images
from trainer.data.streaming import image_folder
from trainer.errors import UserError


def test_every_way_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_pipeline, "WORKERS", (0, 1))
    monkeypatch.setattr(input_pipeline, "QUICK_SECONDS", 0.01)
    monkeypatch.setattr(input_pipeline, "QUICK_ROUNDS", 2)
    monkeypatch.setattr("trainer.bench.measure.TUNING_SECONDS", 0.0)
    fill(tmp_path / "images")
    said: list[str] = []
    small = ["--dataset", "synthetic", "--batch-size", "64", "--image-size", "16", "--image-batch-size", "8"]
    words = [*small, "--data", str(tmp_path / "images"), "--json", str(tmp_path / "figures.json"), "--quick"]
    assert input_pipeline.main(words, say=said.append) == 0
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert list(figures) == [
        "naive",
        "naive, crop and flip",
        "resident",
        "resident, crop and flip",
        "naive, large images",
        "streamed, 0 workers",
        "streamed, 1 workers",
        "streamed, auto",
    ]
    assert all(len(rates) == 2 and min(rates) > 0 for rates in figures.values())
    assert sum(line.startswith("streamed") for line in said) == 3


def test_made_images_are_like_photographs(tmp_path: Path) -> None:
    make_images(tmp_path, count=4)
    found = image_folder.find(tmp_path)
    assert (len(found.train), len(found.test), len(found.classes)) == (4 * COPIES, 4, 4)
    sizes = [Path(found.test.path(number)).stat().st_size for number in range(4)]
    assert all(50_000 < size < 160_000 for size in sizes)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--batch-size", "0"], "--batch-size: '0' is not a whole number from 1 to"),
        (["--fast"], "unrecognized arguments: --fast .*bench-input --help"),
    ],
)
def test_wrong_flags_are_reported(words: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        input_pipeline.main(words)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--batch-size", "100000"], "--batch-size: a batch of 100000 is more than the 4096 training images"),
        (["--image-batch-size", "64"], "--image-batch-size: a batch of 64 is more than the 10 training images"),
        (["--image-size", "100000"], "--image-size: '100000' is not a whole number from 8 to 4096"),
    ],
)
def test_more_than_there_is_or_fits_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.setattr(input_pipeline, "QUICK_SECONDS", 0.01)
    monkeypatch.setattr(input_pipeline, "QUICK_ROUNDS", 1)
    fill(tmp_path, train=5)
    with pytest.raises(UserError, match=said) as caught:
        input_pipeline.main(["--dataset", "synthetic", "--data", str(tmp_path), "--quick", *words], say=[].append)
    assert caught.value.exit_code == 2


def test_figures_that_can_not_be_written_are_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--json: .*No such file") as caught:
        input_pipeline._write(tmp_path / "none" / "figures.json", [])
    assert caught.value.exit_code == 2
