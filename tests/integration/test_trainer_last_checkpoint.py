"""Real ranks whose end is hard: the disk takes no checkpoint, or a stop comes in the middle of an evaluation."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.local import machine
from tests.support.trainer_runs import LIMIT, ROOT, environment, finish, records, start_two_nodes, wait_for

pytestmark = pytest.mark.timeout(1500)
FLAGS = ["--dataset", "synthetic", "--model", "tutorial-cnn", "--batch-size", "512", "--max-val-items", "64"]
ON_TMPFS = 'mount -t tmpfs -o size=100k none "$1" && shift && exec "$@"'
"""A checkpoint of the model above needs some 360 kB."""


def _on_tmpfs(folder: Path, *flags: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run two ranks, that no launcher follows, in a mount namespace of their own, in which `folder` has 100 kB."""
    alone = {name: value for name, value in environment().items() if name != "RINGMASTER_JOB"}
    port = machine.free_port(machine.LOOPBACK)
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={port}", "-m", "trainer"]
    inside = ["unshare", "--map-root-user", "--mount", "sh", "-c", ON_TMPFS, "sh", str(folder)]
    return subprocess.run(
        [*inside, sys.executable, *torchrun, *FLAGS, *flags],
        cwd=ROOT,
        env={**alone, **variables},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


@pytest.fixture
def mountable(tmp_path: Path) -> Path:
    """A folder on which this user can mount a file system of their own."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", ON_TMPFS, "sh", str(folder), "true"]
    if shutil.which("unshare") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no user may mount anything here (unshare --map-root-user --mount)")
    return folder


def test_a_run_that_could_save_nothing_fails_on_every_rank(mountable: Path) -> None:
    ended = _on_tmpfs(mountable, "--max-steps", "2", "--run-dir", str(mountable / "run"))
    assert ended.returncode != 0
    assert ended.stderr.count("trainer: error: the last checkpoint, of step 2, could not be saved") == 1, ended.stderr
    assert "No space left on device" in ended.stderr and "kB needed" in ended.stderr.replace("MB", "kB")
    assert ended.stderr.count("exitcode  : 4") == 2, "torchrun lists each rank"
    assert "model is" not in ended.stdout


def test_a_full_checkpoint_folder_is_evaded(mountable: Path, tmp_path: Path) -> None:
    ended = _on_tmpfs(mountable, "--max-steps", "2", "--run-dir", str(tmp_path), CHECKPOINT_DIR=str(mountable))
    assert ended.returncode == 0, ended.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["state"], summary["checkpoint"]) == ("succeeded", str(tmp_path / "last-resort/step-00000002.pt"))
    assert Path(summary["checkpoint"]).exists()
    assert f"the trained model is {tmp_path / 'last-resort' / 'model.pt'}" in ended.stdout


def test_a_stop_ends_an_evaluation_on_all_ranks(tmp_path: Path) -> None:
    flags = ["--dataset", "synthetic", "--model", "resnet18", "--batch-size", "8", "--eval-steps", "1", "--tta", "flip"]
    agents = start_two_nodes(tmp_path, flags)
    wait_for(tmp_path, agents[0])  # the record of a step comes before its evaluation
    agents[1].send_signal(signal.SIGTERM)
    assert all(code != 0 for code, _ in finish(agents))
    assert [record["step"] for record in records(tmp_path, "stopped")] == [1]
    assert (tmp_path / "checkpoints" / "step-00000001.json").exists()
    assert not [record for record in records(tmp_path, "step") if "test_accuracy" in record]
