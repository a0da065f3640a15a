"""Real ranks under real torchrun, on synthetic pictures: what must not depend on how they are spread or interrupted."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from launcher import machine
from trainer import models
from trainer.checkpoint import CheckpointFolder

ROOT = Path(__file__).parents[2]
FLAGS = ["--dataset", "synthetic", "--model", "tutorial-cnn", "--epochs", "8", "--batch-size", "64", "--lr", "0.01"]
FLAGS += ["--checkpoint-steps", "64", "--keep", "99"]
STEPS = 8 * 4096 // 64
EARLY = 128
"""A step before the loss begins to fall: there rounding grows into other, equally good parameters."""
LIMIT = 400
pytestmark = pytest.mark.timeout(1500)


def _environment() -> dict[str, str]:
    mine = {name: value for name, value in os.environ.items() if not name.startswith("RINGMASTER_")}
    return {
        **mine,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "RINGMASTER_JOB": "test",
        "CUDA_VISIBLE_DEVICES": "",
    }


def _start(run: Path, *options: str, flags: list[str]) -> subprocess.Popen[str]:
    launcher = ["-m", "torch.distributed.run", *options] if options else []
    command = [sys.executable, *launcher, "-m", "trainer", *flags, "--run-dir", str(run)]
    return subprocess.Popen(command, cwd=ROOT, env=_environment(), stderr=subprocess.PIPE, text=True)


def _two_nodes(run: Path, flags: list[str] = FLAGS, others: list[str] | None = None) -> list[subprocess.Popen[str]]:
    """`others`: the second node's flags, where they are not the same."""
    port = machine.free_port(machine.LOOPBACK)
    rendezvous = [
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{port}",
        "--rdzv-id=test",
        "--local-addr=127.0.0.1",
    ]
    return [
        _start(run, "--nnodes=2", "--nproc-per-node=1", *rendezvous, flags=each) for each in (flags, others or flags)
    ]


def _finish(processes: list[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    try:
        errors = [process.communicate(timeout=LIMIT)[1] for process in processes]
        return [(process.returncode, text) for process, text in zip(processes, errors, strict=True)]
    finally:
        for process in processes:
            process.kill()


def _records(run: Path, event: str) -> list[dict[str, Any]]:
    path = run / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    lines = text[: text.rfind("\n") + 1].splitlines()  # the last may be half there
    return [record for record in map(json.loads, lines) if event in (record["kind"], record.get("event"))]


def _wait_for(run: Path, process: subprocess.Popen[str], event: str = "step") -> None:
    deadline = time.monotonic() + LIMIT
    while not _records(run, event):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)


def _parameters(run: Path, step: int | None = None) -> dict[str, torch.Tensor]:
    if step is None:
        state: dict[str, torch.Tensor] = torch.load(run / "checkpoints" / "model.pt", weights_only=True)
    else:
        state = torch.load(run / "checkpoints" / f"step-{step:08d}.pt", weights_only=True)["model"]
    return state


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("two")
    assert [code for code, _ in _finish(_two_nodes(run))] == [0, 0]
    return run


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two nodes, of which one is told to stop in the middle; then the same command again."""
    run = tmp_path_factory.mktemp("stopped")
    agents = _two_nodes(run)
    _wait_for(run, agents[0])
    agents[1].send_signal(signal.SIGTERM)
    assert all(code != 0 for code, _ in _finish(agents))
    yield run


def test_two_nodes_train_like_one(two_nodes: Path, tmp_path: Path) -> None:
    assert _finish([_start(tmp_path / "one", flags=FLAGS)])[0][0] == 0
    assert _records(two_nodes, "start")[0]["world_size"] == 2
    assert _records(two_nodes, "done")[0]["step"] == _records(tmp_path / "one", "done")[0]["step"] == STEPS
    two, one = _parameters(two_nodes, EARLY), _parameters(tmp_path / "one", EARLY)
    torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-6)
    with pytest.raises(AssertionError):  # the steps between are far more than the tolerance
        torch.testing.assert_close(_parameters(two_nodes, EARLY - 64), one, rtol=1e-2, atol=1e-4)
    accuracies = [_records(run, "epoch")[-1]["test_accuracy"] for run in (two_nodes, tmp_path / "one")]
    assert accuracies[0] == pytest.approx(accuracies[1], abs=0.03) and min(accuracies) > 0.9


def test_stop_and_resume_equals_an_undisturbed_run(two_nodes: Path, stopped: Path) -> None:
    step = _records(stopped, "stopped")[0]["step"]
    assert 0 < step < STEPS
    found = CheckpointFolder(stopped / "checkpoints").newest(say=print, set_aside=False)
    assert found is not None and found[1].step == step
    assert [code for code, _ in _finish(_two_nodes(stopped))] == [0, 0]
    assert _records(stopped, "resume")[0]["step"] == step
    torch.testing.assert_close(_parameters(stopped), _parameters(two_nodes), rtol=0, atol=0)


def test_the_saved_model_fits_a_plain_one(two_nodes: Path) -> None:
    model = models.build("tutorial-cnn", channels=1, size=28, classes=10)
    model.load_state_dict(_parameters(two_nodes))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_rank_stops_with_the_signals_exit_code(number: signal.Signals, tmp_path: Path) -> None:
    process = _start(tmp_path, flags=[*FLAGS, "--epochs", "200"])
    _wait_for(tmp_path, process)
    process.send_signal(number)
    assert _finish([process])[0][0] == 128 + number
    step = _records(tmp_path, "stopped")[0]["step"]
    assert (tmp_path / "checkpoints" / f"step-{step:08d}.json").exists()


def test_strategy_none_is_refused_with_two_ranks(tmp_path: Path) -> None:
    process = _start(tmp_path, "--nproc-per-node=2", flags=[*FLAGS, "--strategy", "none"])
    errors = _finish([process])[0][1]
    assert errors.count("trainer: error: argument --strategy: none trains in one process, not in 2") == 1
    assert "exitcode  : 2" in errors and "Error\n" not in errors.split("ChildFailedError")[0].split("Traceback")[0]


def test_compile_without_a_compiler_trains_eagerly_and_says_so(tmp_path: Path) -> None:
    flags = ["--dataset", "synthetic", "--max-steps", "1", "--max-val-items", "64", "--compile"]
    done = subprocess.run(
        [sys.executable, "-m", "trainer", *flags, "--run-dir", str(tmp_path)],
        cwd=ROOT,
        env={**_environment(), "PATH": "/nowhere", "CXX": ""},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    assert "training eagerly" in done.stdout
