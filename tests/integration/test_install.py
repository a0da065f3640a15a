"""`requirements/install.sh` with real pip and uv, on a lock of one small package."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from launcher.base.paths import ROOT

EXIT_FUNCTION = ("ringmaster_exit.py", "ringmaster_exit.pth")


def locked(name: str) -> str:
    """Return the lines that lock one package of the control layer, once for each of its versions."""
    lock = (ROOT / "requirements" / "control.txt").read_text()
    entries: list[str] = re.findall(rf"^{name}==.*(?:\n .*)*\n", lock, re.MULTILINE)
    assert entries
    return "".join(entries)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout whose control layer is one package, already installed; its path has a space."""
    place = tmp_path_factory.mktemp("a checkout")
    (place / "requirements").mkdir()
    for name in ("install.sh", "installer.txt", *EXIT_FUNCTION):
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


def fake_python(path: Path, version: str) -> Path:
    """Write a program that says it is Python `version`, and otherwise is the Python of these tests."""
    numbers = tuple(map(int, version.split(".")))
    path.write_text(
        f"""#!/bin/sh
case $1 in
    -V) echo "Python {version}" ;;
    -c) shift; code=$1; shift; exec {sys.executable} -c "import sys; sys.version_info = {numbers}
$code" "$@" ;;
    *) exec {sys.executable} "$@" ;;
esac
"""
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def fresh(place: Path, tmp_path: Path) -> Path:
    """The same checkout before its first installation."""
    shutil.copytree(place / "requirements", tmp_path / "fresh" / "requirements")
    return tmp_path / "fresh"


def imports(place: Path, module: str) -> bool:
    return subprocess.run([place / ".venv/bin/python", "-c", f"import {module}"], capture_output=True).returncode == 0


def test_a_second_call_does_nothing(place: Path) -> None:
    done = install(place)
    assert (done.returncode, done.stdout) == (0, "")
    assert imports(place, "idna")


def test_through_a_link_it_is_the_same_checkout(place: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(place)
    done = install(tmp_path / "link", PWD=str(tmp_path / "link"))
    assert (done.returncode, done.stdout) == (0, ""), "nothing was made anew"
    line = 'cd "$0" && requirements/install.sh control'
    done = subprocess.run(["sh", "-c", line, tmp_path / "link"], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_exit_function_is_put_in_place_and_replaced_by_a_changed_one(place: Path) -> None:
    count = [place / ".venv/bin/python", "-c", "import atexit; print(atexit._ncallbacks())"]
    assert subprocess.run(count, capture_output=True, text=True).stdout == "1\n"
    source = place / "requirements" / "ringmaster_exit.py"
    source.write_text(f"{source.read_text()}atexit.register(int)\n")
    done = install(place)
    assert (done.returncode, done.stdout) == (0, "")
    assert subprocess.run(count, capture_output=True, text=True).stdout == "2\n"
    shutil.copy(ROOT / "requirements" / source.name, source)
    assert install(place).returncode == 0
    assert subprocess.run(count, capture_output=True, text=True).stdout == "1\n"


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
    assert "creating .venv" in done.stdout, "an interrupted installation may be incomplete"
    assert imports(place, "idna")


def test_a_checkout_that_was_moved_and_a_python_that_is_gone(place: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(place, moved, symlinks=True)
    assert "creating .venv" in install(moved).stdout
    (moved / ".venv/bin/python").unlink()
    assert "creating .venv" in install(moved).stdout
    assert imports(moved, "idna")


@pytest.mark.parametrize("version", ["3.10.13", "3.15.0"])
def test_a_python_that_is_too_old_or_too_new_is_refused(fresh: Path, tmp_path: Path, version: str) -> None:
    python = fake_python(tmp_path / "python", version)
    done = install(fresh, PYTHON=str(python))
    assert done.returncode == 3
    assert "needs Python 3.11 to 3.14 (newer ones lack wheels of the locked packages), but" in done.stdout
    assert f"{python} is Python {version}. Install one of them" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("ringmaster: exit 3")
    assert not (fresh / ".venv").exists()


def test_a_python_that_is_not_there_is_refused(fresh: Path) -> None:
    done = install(fresh, PYTHON="/no/such/python")
    assert done.returncode == 3
    assert "needs Python 3.11 to 3.14" in done.stdout and "/no/such/python is not installed" in done.stdout
    assert not (fresh / ".venv").exists()


def test_python_3_14_is_taken_where_python3_is_too_new(fresh: Path, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    fake_python(programs / "python3", "3.15.0")
    fake_python(programs / "python3.14", "3.14.0")
    done = install(fresh, PYTHON="", PATH=f"{programs}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stdout
    assert "creating .venv with Python 3.14.0" in done.stdout
    assert imports(fresh, "idna")


@pytest.mark.parametrize(("minor", "core"), [(11, "2.19"), (12, "2.21"), (14, "2.21")])
def test_the_lock_has_one_ansible_core_for_each_python(minor: int, core: str) -> None:
    environment = {"python_full_version": f"3.{minor}.0", "python_version": f"3.{minor}"}
    lines = [line.rstrip(" \\") for line in locked("ansible-core").splitlines() if not line.startswith(" ")]
    chosen = [one for one in map(Requirement, lines) if one.marker is None or one.marker.evaluate(environment)]
    assert len(chosen) == 1 and str(chosen[0].specifier).startswith(f"=={core}.")


def test_the_locks_name_no_index() -> None:
    for lock in (ROOT / "requirements").glob("*.txt"):
        assert "://" not in lock.read_text(), lock
