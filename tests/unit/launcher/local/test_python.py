"""The Python of a job's ranks on this machine: asked what it has, and put first on their PATH."""

import subprocess
import sys
from pathlib import Path

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.local.python import activation, our_python, users_python


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """Return a virtual environment without any package."""
    folder = tmp_path / "an environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder


def with_torch(environment: Path, version: str) -> None:
    (packages,) = environment.glob("lib/python3*/site-packages")
    (packages / "torch").mkdir()
    (packages / "torch" / "__init__.py").write_text("raise SystemExit('it is not to be imported')")
    (packages / f"torch-{version}.dist-info").mkdir()
    (packages / f"torch-{version}.dist-info" / "METADATA").write_text(f"Name: torch\nVersion: {version}\n")


def test_the_launchers_own_comes_first_on_path() -> None:
    python = our_python({"PATH": f"/usr/bin:{Path(sys.executable).parent}:/bin"})
    assert python.environment["PATH"] == f"{Path(sys.executable).parent}:/usr/bin:/bin"
    assert python.versions.startswith(f"Python {sys.version.split()[0]}, torch ")


def test_the_users_own_says_what_it_has(environment: Path) -> None:
    with_torch(environment, "2.9.1+cpu")
    python = users_python(environment / "bin" / "python", {"PATH": "/bin"}, bundled=False)
    assert python.environment == {"PATH": f"{environment / 'bin'}:/bin", "VIRTUAL_ENV": str(environment)}
    assert python.versions == f"Python {sys.version.split()[0]}, torch 2.9.1+cpu, torchvision not installed"
    assert python.agent[0] == str(environment / "bin" / "python")
    assert python.agent[-2:] == ("-m", "torch.distributed.run")
    assert not python.waits


def test_it_may_print_something_when_it_starts(environment: Path) -> None:
    with_torch(environment, "2.9.1")
    (packages,) = environment.glob("lib/python3*/site-packages")
    (packages / "sitecustomize.py").write_text("print('{\"hello\": 1}')")
    assert users_python(environment / "bin" / "python", {}, bundled=False).packages["torch"] == "2.9.1"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo no; exit 3", r"is no Python that works: it ended with 3 \(no\)$"),
        ("echo '[1]'", "is no Python that works"),
        ("printf 'caf\\351' >&2", "is no Python that works"),
        ("true", r"is no Python that works: it ended with 0 \(it said nothing\)"),
    ],
)
def test_what_is_no_python_is_refused(script: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(RingmasterError, match=message) as raised:
        users_python(program(tmp_path / "python", script), {"PATH": "/usr/bin:/bin"}, bundled=False)
    assert raised.value.exit_code == ExitCode.NOT_STARTED


def test_what_can_not_run_the_job_is_refused(environment: Path, tmp_path: Path) -> None:
    python = environment / "bin" / "python"
    with pytest.raises(RingmasterError, match="has no torch: install it there"):
        users_python(python, {}, bundled=False)
    with_torch(environment, "2.9.1")
    with pytest.raises(RingmasterError, match=r"has torch 2\.9\.1; the bundled trainer needs 2\.10"):
        users_python(python, {}, bundled=True)
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o755)
    with pytest.raises(RingmasterError, match="can't be started"):
        users_python(broken, {}, bundled=False)


def test_a_conda_environment_is_activated_as_one(tmp_path: Path) -> None:
    (tmp_path / "conda-meta").mkdir()
    set_by_it = activation(tmp_path / "bin", tmp_path, {})
    assert set_by_it["CONDA_PREFIX"] == str(tmp_path)
    assert "VIRTUAL_ENV" not in set_by_it
    assert set_by_it["PATH"].startswith(f"{tmp_path / 'bin'}:/")


def test_torchrun_finds_no_neighbour_of_the_script_under_an_old_python(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (packages,) = environment.glob("lib/python3*/site-packages")
    (packages / "torch" / "distributed").mkdir(parents=True)
    (packages / "torch" / "distributed" / "run.py").write_text("import queue, sys\ndef main(): print(sys.argv[1:])\n")
    (tmp_path / "queue.py").write_text("raise SystemExit('the neighbour')")
    asked = {"python": "3.10.1", "prefix": "", "executable": "", "packages": {"torch": "2.1"}, "waits": True}
    monkeypatch.setattr("launcher.local.python._asked", lambda *_: asked)
    agent = users_python(environment / "bin" / "python", {}, bundled=False).agent
    done = subprocess.run([*agent, "--nnodes=1"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "['--nnodes=1']\n"
