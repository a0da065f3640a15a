"""`requirements/install.sh` with real pip and uv, on a lock of one small package."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.base.paths import ROOT


def locked(name: str) -> str:
    """The lines that lock one package of the control layer."""
    lock = (ROOT / "requirements" / "control.txt").read_text()
    found = re.search(rf"^{name}==.*(?:\n .*)*\n", lock, re.MULTILINE)
    assert found
    return found[0]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout in which the control layer is one package, installed; with a space in its path."""
    place = tmp_path_factory.mktemp("a checkout")
    (place / "requirements").mkdir()
    for name in ("install.sh", "installer.txt"):
        shutil.copy(ROOT / "requirements" / name, place / "requirements" / name)
    (place / "requirements" / "control.txt").write_text(locked("idna"))
    done = install(place)
    assert done.returncode == 0, done.stdout
    assert "installing control" in done.stdout
    return place


def install(place: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(place / "requirements" / "install.sh"), "control"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        env={**_plain_environment(), "PYTHON": sys.executable, **environment},
    )


def _plain_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "RINGMASTER_INSTALLING"}


def imports(place: Path, module: str) -> bool:
    return subprocess.run([place / ".venv/bin/python", "-c", f"import {module}"], capture_output=True).returncode == 0


def test_a_second_call_does_nothing(place: Path) -> None:
    done = install(place)
    assert (done.returncode, done.stdout) == (0, "")
    assert imports(place, "idna")


def test_a_changed_lock_is_installed_and_what_the_user_added_stays(place: Path) -> None:
    lock = place / "requirements" / "control.txt"
    lock.write_text(locked("idna") + locked("packaging"))
    done = install(place)
    assert "installing control" in done.stdout and "creating" not in done.stdout
    assert imports(place, "packaging")
    lock.write_text(locked("idna"))
    assert install(place).returncode == 0
    assert imports(place, "packaging")


def test_a_wrong_hash_is_refused_and_the_next_call_starts_anew(place: Path) -> None:
    lock = place / "requirements" / "control.txt"
    lock.write_text(re.sub(r"sha256:\w{8}", "sha256:00000000", locked("certifi")))
    done = install(place)
    assert done.returncode == 3
    assert done.stdout.splitlines()[-1].startswith("ringmaster: exit 3")
    lock.write_text(locked("idna"))
    done = install(place)
    assert done.returncode == 0
    assert "creating .venv" in done.stdout, "what was interrupted may be there in part"
    assert imports(place, "idna")


def test_a_checkout_that_was_moved_and_a_python_that_is_gone(place: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(place, moved, symlinks=True)
    assert "creating .venv" in install(moved).stdout
    (moved / ".venv/bin/python").unlink()
    assert "creating .venv" in install(moved).stdout
    assert imports(moved, "idna")


def test_a_python_that_is_too_old_or_not_there(place: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    shutil.copytree(place / "requirements", fresh / "requirements")
    done = install(fresh, PYTHON="/no/such/python")
    assert done.returncode == 3
    assert "needs Python 3.11 or newer, but /no/such/python is not there" in done.stdout
    assert not (fresh / ".venv").exists()
