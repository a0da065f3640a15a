"""Real ranks under real torchrun on a folder of images."""

import os
import signal
import time
from pathlib import Path

import pytest
import torch

from tests.support.made_folder import fill, write
from tests.support.trainer_runs import LIMIT, finish, parameters, records, start, start_two_nodes, wait_for

EARLY = 32
"""A step so early that rounding has not grown into different parameters."""
pytestmark = pytest.mark.timeout(1500)
FLAGS = ["--dataset", "folder", "--image-size", "28", "--model", "tutorial-cnn", "--lr", "0.01", "--batch-size", "8"]
FLAGS += ["--schedule", "constant", "--warmup", "0", "--max-val-items", "2", "--checkpoint-steps", str(EARLY // 2)]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """512 images of two classes, many of them identical."""
    root = fill(tmp_path_factory.mktemp("images"), test=1)
    for each in sorted((root / "train").rglob("*.*")):
        for copy in range(15):
            os.link(each, each.with_stem(f"{each.stem}-{copy}"))
    return root


def test_two_ranks_see_the_steps_of_one_and_find_their_workers(images: Path, tmp_path: Path) -> None:
    flags = [*FLAGS, "--data", str(images), "--keep", "99999"]
    agents = start_two_nodes(tmp_path / "two", [*flags, "--epochs", "1000"])
    wait_for(tmp_path / "two", agents[0], "workers")
    deadline = time.monotonic() + LIMIT
    while not (tmp_path / "two" / "checkpoints" / f"step-{EARLY:08d}.json").exists():
        assert agents[0].poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    agents[1].send_signal(signal.SIGTERM)
    finish(agents)
    assert records(tmp_path / "two", "start")[0]["world_size"] == 2
    assert len(records(tmp_path / "two", "workers")) == len(records(tmp_path / "two", "stopped")) == 1
    assert finish([start(tmp_path / "one", flags=[*flags, "--workers", "0", "--max-steps", str(EARLY)])])[0][0] == 0
    two, one = parameters(tmp_path / "two", EARLY), parameters(tmp_path / "one", EARLY)
    torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-6)
    with pytest.raises(AssertionError):  # a step is far more than the tolerance
        torch.testing.assert_close(parameters(tmp_path / "two", EARLY // 2), one, rtol=1e-2, atol=1e-4)


def test_ranks_with_other_images_are_refused(images: Path, tmp_path: Path) -> None:
    other = fill(tmp_path / "other", test=1)
    write(other / "train" / "cow" / "0.png")
    nodes = [[*FLAGS, "--data", str(root)] for root in (images, other)]
    ended = finish(start_two_nodes(tmp_path / "run", *nodes))
    assert all(code != 0 for code, _ in ended)
    errors = "".join(text for _, text in ended)
    assert errors.count("see other files or classes there than rank 0; make the folder the same on every node") == 1
