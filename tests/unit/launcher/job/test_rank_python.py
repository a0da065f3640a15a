"""Which Python RANK_PYTHON names, and which can't run a job."""

from pathlib import Path

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.job.rank_python import lacks, locate, older

FITS = {"python": "3.9.1", "torch": "2.0.0"}


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """Return an environment's folder, with a space in its name and a Python that is a link, as in a real one."""
    folder = tmp_path / "my envs" / "työ"
    (folder / "bin").mkdir(parents=True)
    (tmp_path / "base").write_text("#!/bin/sh\n")
    (tmp_path / "base").chmod(0o755)
    (folder / "bin" / "python").symlink_to(tmp_path / "base")
    return folder


def test_a_path_or_its_environments_folder(environment: Path) -> None:
    python = environment / "bin" / "python"
    assert locate(str(environment)) == locate(f"{environment}/") == locate(str(python)) == python


def test_a_bare_name_is_looked_up_on_path(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(environment / "bin"))
    assert locate("python") == environment / "bin" / "python"
    with pytest.raises(RingmasterError, match=r"^RANK_PYTHON=python3\.99: no such file or folder, and no such"):
        locate("python3.99")


def test_what_is_no_python(environment: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "project").mkdir()
    environment.rename(tmp_path / "project" / ".venv")
    for path, message in (
        (tmp_path / "none", "no such file or folder"),
        (plain, "can't be executed"),
        (tmp_path / "gone", "a link to nothing"),
        (tmp_path / "project", r"no bin/python in it; did you mean .*/project/\.venv\?$"),
        (tmp_path, "no bin/python in it$"),
    ):
        with pytest.raises(RingmasterError, match=message) as raised:
            locate(str(path))
        assert raised.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("packages", "bundled", "message"),
    [
        (FITS, False, ""),
        ({**FITS, "torch": ""}, False, ""),
        ({"python": "3.8.18"}, False, "is Python 3.8.18; 3.9 or newer"),
        ({"python": "3.12.0"}, False, "has no torch"),
        ({**FITS, "torch": "1.13.1+cu117"}, False, "has torch 1.13.1"),
        (FITS, True, "has Python 3.9.1; the bundled trainer needs 3.11"),
        ({"python": "3.11.2", "torch": "2.9.1+cpu"}, True, "has torch 2.9.1"),
        ({"python": "3.11.2", "torch": "2.10.0", "numpy": "2"}, True, "lacks torchvision"),
        ({"python": "3.11.2", "torch": "2.10.0", "numpy": "2", "torchvision": "0.25"}, True, ""),
    ],
)
def test_what_a_python_lacks(packages: dict[str, str], bundled: bool, message: str) -> None:
    assert next(iter(lacks(packages, bundled=bundled)), "").startswith(message)
    assert bool(list(lacks(packages, bundled=bundled))) == bool(message)


def test_versions_are_numbers() -> None:
    assert older("2.9.1+cu128", (2, 10))
    assert older("2", (2, 1))
    assert not older("2", (2, 0))
    assert not older("2.10.0a0+git1", (2, 10))
    assert not older("", (2, 10))
