"""Real ranks under real torchrun, on synthetic images: results must not depend on placement or interruptions."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.support.trainer_runs import (
    FLAGS,
    LIMIT,
    ROOT,
    environment,
    finish,
    parameters,
    records,
    start,
    start_two_nodes,
    wait_for,
)
from trainer.checkpoint.files import CheckpointFolder
from trainer.model import models

STEPS = 8 * 4096 // 64
EARLY = 128
"""A step before the loss begins to fall, when rounding grows into other, equally good parameters."""
pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("two")
    assert [code for code, _ in finish(start_two_nodes(run))] == [0, 0]
    return run


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two nodes, one of which is stopped half-way; then the same command again."""
    run = tmp_path_factory.mktemp("stopped")
    agents = start_two_nodes(run)
    wait_for(run, agents[0])
    agents[1].send_signal(signal.SIGTERM)
    assert all(code != 0 for code, _ in finish(agents))
    yield run


def test_two_nodes_train_like_one(two_nodes: Path, tmp_path: Path) -> None:
    assert finish([start(tmp_path / "one", flags=FLAGS)])[0][0] == 0
    assert records(two_nodes, "start")[0]["world_size"] == 2
    assert records(two_nodes, "done")[0]["step"] == records(tmp_path / "one", "done")[0]["step"] == STEPS
    two, one = parameters(two_nodes, EARLY), parameters(tmp_path / "one", EARLY)
    torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-6)
    with pytest.raises(AssertionError):  # the steps between are far more than the tolerance
        torch.testing.assert_close(parameters(two_nodes, EARLY - 64), one, rtol=1e-2, atol=1e-4)
    accuracies = [records(run, "epoch")[-1]["test_accuracy"] for run in (two_nodes, tmp_path / "one")]
    assert accuracies[0] == pytest.approx(accuracies[1], abs=0.03) and min(accuracies) > 0.9


def test_stop_and_resume_equals_an_undisturbed_run(two_nodes: Path, stopped: Path) -> None:
    step = records(stopped, "stopped")[0]["step"]
    assert 0 < step < STEPS
    found = CheckpointFolder(stopped / "checkpoints").newest(say=print, set_aside=False)
    assert found is not None and found[1].step == step
    assert [code for code, _ in finish(start_two_nodes(stopped))] == [0, 0]
    assert records(stopped, "resume")[0]["step"] == step
    torch.testing.assert_close(parameters(stopped), parameters(two_nodes), rtol=0, atol=0)


def test_the_saved_model_fits_a_plain_one(two_nodes: Path) -> None:
    model = models.build("tutorial-cnn", channels=1, size=28, classes=10)
    model.load_state_dict(parameters(two_nodes))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_rank_stops_with_the_signals_exit_code(number: signal.Signals, tmp_path: Path) -> None:
    process = start(tmp_path, flags=[*FLAGS, "--epochs", "200"])
    wait_for(tmp_path, process)
    process.send_signal(number)
    assert finish([process])[0][0] == 128 + number
    step = records(tmp_path, "stopped")[0]["step"]
    assert (tmp_path / "checkpoints" / f"step-{step:08d}.json").exists()


def test_strategy_none_is_refused_with_two_ranks(tmp_path: Path) -> None:
    process = start(tmp_path, "--nproc-per-node=2", flags=[*FLAGS, "--strategy", "none"])
    errors = finish([process])[0][1]
    assert errors.count("trainer: error: argument --strategy: none trains in one process, not in 2") == 1
    assert "exitcode  : 2" in errors and "Error\n" not in errors.split("ChildFailedError")[0].split("Traceback")[0]


def test_compile_without_a_compiler_trains_eagerly_and_says_so(tmp_path: Path) -> None:
    flags = ["--dataset", "synthetic", "--max-steps", "1", "--max-val-items", "64", "--compile"]
    done = subprocess.run(
        [sys.executable, "-m", "trainer", *flags, "--run-dir", str(tmp_path)],
        cwd=ROOT,
        env={**environment(), "PATH": "/nowhere", "CXX": ""},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    assert "training eagerly" in done.stdout
