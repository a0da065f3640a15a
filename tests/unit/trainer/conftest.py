"""Shared by the trainer's unit tests."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from trainer.config.run_config import parse
from trainer.run import run


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


Train = Callable[..., int]


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Train]:
    """Run the trainer in this process, 512 synthetic images a step, into tmp_path/<name>; return its exit code."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def call(*flags: str, name: str = "run") -> int:
        base = ["--dataset", "synthetic", "--model", "tutorial-cnn", "--batch-size", "512", "--max-val-items", "64"]
        config = parse([*base, "--run-dir", str(tmp_path / name), *flags], {"RINGMASTER_JOB": "unit"})
        return run(config)

    yield call
    for number, handler in handlers.items():
        signal.signal(number, handler)
