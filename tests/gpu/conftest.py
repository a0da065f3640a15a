"""Tests that need a GPU: they run if torch sees one, and are skipped with that reason otherwise."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer.config.run_config import parse
from trainer.distributed.signals import StopSignal
from trainer.reporting.summary import read_records
from trainer.run import run

Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture(autouse=True)
def _a_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU here")


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Train in this process on synthetic images into tmp_path/<name>; return the records of metrics.jsonl."""
    monkeypatch.setattr(StopSignal, "install", lambda _self: None)  # the tests' own handlers stay

    def call(*flags: str, name: str = "run") -> list[dict[str, Any]]:
        folder = tmp_path / name
        base = ["--dataset", "synthetic", "--max-val-items", "64", "--run-dir", str(folder), "--resume", "none"]
        assert run(parse([*base, "--data-dir", str(tmp_path), *flags], {"RINGMASTER_JOB": "gpu"})) == 0
        return read_records(folder / "metrics.jsonl")

    yield call
    torch.use_deterministic_algorithms(False)
