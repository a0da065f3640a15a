"""Relative paths mean the folder that the user called from, however make was started."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.base import caller
from launcher.base.paths import ROOT

SHOW = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from launcher.base import caller; print(caller.folder())"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder whose Makefile hands on what the real one does, and shows what became of it."""
    folder = tmp_path / "check out"
    folder.mkdir()
    (handed,) = re.findall(r"^export RM_CALLER.*$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    recipe = f"\t@exec {shlex.quote(sys.executable)} -IS {shlex.quote(str(folder / 'show.py'))}\n"
    (folder / "Makefile").write_text(f"SHELL := /bin/sh\n{handed}\nshow:\n{recipe}")
    (folder / "show.py").write_text(SHOW)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "my own $x ü"
    folder.mkdir()
    return folder


def said(*command: str | Path, cwd: Path, shells: str | None = None) -> Path:
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment |= {} if shells is None else {"PWD": shells}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def in_shell(folder: Path, line: str) -> Path:
    """What `line` says in a shell that went to a folder, as a user's did."""
    return said("sh", "-c", f"cd {shlex.quote(str(folder))} && {line}", cwd=Path("/"), shells="/")


def make(checkout: Path, word: str = "-C") -> str:
    return f"make -s {word} {shlex.quote(str(checkout))} show"


@pytest.mark.parametrize("word", ["-C", "--directory", "-sC"])
def test_from_a_project_it_is_the_project(checkout: Path, project: Path, word: str) -> None:
    assert in_shell(project, make(checkout, word)) == project
    assert in_shell(project, f"exec {make(checkout, word)}") == project


def test_a_project_behind_a_link_keeps_its_name(checkout: Path, project: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(project)
    (tmp_path / "linked checkout").symlink_to(checkout)
    assert in_shell(tmp_path / "link", make(tmp_path / "linked checkout")) == tmp_path / "link"


def test_in_the_checkout_it_is_the_checkout(checkout: Path, project: Path) -> None:
    assert in_shell(checkout, "make -s show") == checkout
    assert in_shell(checkout, "make -s -C . show") == checkout
    assert said("make", "-s", "show", cwd=checkout, shells=str(project)) == checkout, (
        "a PWD that nobody kept up to date"
    )
    assert said("make", "-s", "show", cwd=checkout) == checkout


def test_another_makefiles_recipe_is_in_its_own_folder(checkout: Path, project: Path, tmp_path: Path) -> None:
    (project / "sub").mkdir()
    again = f"$(MAKE) -s -C {shlex.quote(str(checkout))} show"
    (project / "Makefile").write_text(f"plain:\n\t@{again}\nbelow:\n\t@cd sub && {again}\n")
    outer = f"make -s -C {shlex.quote(str(project))}"
    assert in_shell(tmp_path, f"{outer} plain") == project
    assert in_shell(tmp_path, f"{outer} below") == project / "sub"


def test_without_pwd_it_is_the_folder_of_whoever_started_make(checkout: Path, project: Path) -> None:
    assert in_shell(project, f"env -u PWD {make(checkout)}; true") == project


def test_a_pwd_that_is_no_folder_does_not_count(checkout: Path, project: Path) -> None:
    for pwd in (str(project / "gone"), "relative", ""):
        assert said("make", "-s", "-C", checkout, "show", cwd=checkout, shells=pwd) in (checkout, Path.cwd())


def test_fab_itself_is_called_from_its_working_folder(checkout: Path, project: Path) -> None:
    assert said(sys.executable, checkout / "show.py", cwd=project) == project


class TestPath:
    @pytest.fixture
    def called_from(self, project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(caller, "folder", lambda: project)
        return project

    def test_a_relative_one_begins_where_the_user_is(self, called_from: Path) -> None:
        assert caller.path("data/x") == called_from / "data/x"
        assert caller.path("/data/x") == Path("/data/x")
        assert caller.absolute("../x/train.py") == called_from.parent / "x" / "train.py"

    def test_two_dots_lead_where_the_system_goes(self, called_from: Path, tmp_path: Path) -> None:
        (tmp_path / "far" / "deep").mkdir(parents=True)
        (called_from / "link").symlink_to(tmp_path / "far" / "deep")
        (tmp_path / "far" / "kept").symlink_to(called_from)
        assert caller.absolute("link/../kept/train.py") == tmp_path / "far" / "kept" / "train.py"

    def test_in_the_checkout_it_stays_as_typed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(caller, "folder", Path.cwd)
        assert caller.path("inventory/local.yml") == Path("inventory/local.yml")

    def test_a_tilde_is_the_home_folder(self, called_from: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", "/home/u")
        assert caller.path("~/x.py") == Path("/home/u/x.py")
        assert caller.path("~nobody-of-that-name/x") == called_from / "~nobody-of-that-name/x"

    def test_where_it_was_looked_for_is_said_once_it_could_be_elsewhere(self, called_from: Path) -> None:
        assert caller.looked_in("no-such") == f" in {called_from}"
        assert f"there is {ROOT / 'inventory/local.yml'}: " in caller.looked_in("inventory/local.yml")
        assert caller.looked_in("/no-such") == ""
