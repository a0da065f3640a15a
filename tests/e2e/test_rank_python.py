"""The Python of the ranks: its programs are found first, and it may be the user's own."""

import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.base.paths import ROOT
from tests.e2e.jobs import Trainer

Script = Callable[..., Path]

WHO = """
import os, shutil, subprocess, sys
import torch.distributed as dist
dist.init_process_group()
dist.barrier()
inner = subprocess.run(["python", "-c", "import torch, sys; print(sys.prefix)"], capture_output=True, text=True,
                       cwd="/")
found = inner.stdout.strip() or inner.stderr, shutil.which("torchrun"), os.environ.get("VIRTUAL_ENV")
print(ascii([sys.prefix, *found]), flush=True)
dist.destroy_process_group()
"""


@pytest.fixture
def own_python(tmp_path: Path) -> Path:
    """Return an environment of the user's, which shares torch with ours, but has no torchrun."""
    folder = tmp_path / "user's own env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib"))
    return folder


def test_programs_of_the_environment_are_found_first(train: Trainer, script: Script) -> None:
    job = train(SCRIPT=script(WHO), NODES=1)
    assert job.exit_code == 0, job.output
    prefix, inner, torchrun, environment = eval(job.lines_of("node1:0")[0])  # noqa: S307 - our own script printed it
    assert prefix == inner == environment == str(ROOT / ".venv")
    assert torchrun == str(ROOT / ".venv" / "bin" / "torchrun")


def test_the_users_own_python_runs_the_ranks_and_torchrun(train: Trainer, script: Script, own_python: Path) -> None:
    path = script(WHO, "sub.py")
    (path.parent / "code").mkdir()
    path = path.rename(path.parent / "code" / "script.py")
    (path.parent.parent / ".git").mkdir()
    (path.parent.parent / "queue.py").write_text("raise SystemExit('torchrun took the code root for its own')")
    job = train(SCRIPT=path, RANK_PYTHON=own_python)
    assert job.exit_code == 0, job.output
    for label in ("node1:0", "node2:1"):
        prefix, inner, _, environment = eval(job.lines_of(label)[0])  # noqa: S307 - our own script printed it
        assert prefix == inner == environment == str(own_python)
    assert job.plan["rank_python"] == str(own_python / "bin" / "python")
    assert job.plan["nodes"][0]["argv"][0] == str(own_python / "bin" / "python")
    assert f"({own_python}/bin/python)" in job.output  # in the banner, beside its versions
    assert "has no ringmaster_exit" in job.output


def test_a_python_without_torch_starts_nothing(train: Trainer, script: Script, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    job = train(SCRIPT=script(WHO), RANK_PYTHON=tmp_path / "bare")
    assert (job.exit_code, job.folder.exists()) == (3, False), job.output
    assert "has no torch: install it there" in job.output
