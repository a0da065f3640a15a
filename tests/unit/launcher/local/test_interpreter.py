"""A module that is not the user's own is looked for in the interpreter, before anything starts."""

import sys
from pathlib import Path

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.local.interpreter import refuse_missing

PYTHON = Path(sys.executable)


@pytest.mark.parametrize("name", ["pytest", "timeit", "json.tool", "http.server", "pytest:py.test"])
def test_what_it_has_may_run(tmp_path: Path, name: str) -> None:
    (tmp_path / "http").mkdir()  # a folder without modules hides nothing
    refuse_missing(name, tmp_path, PYTHON)


def test_the_users_own_is_not_asked_for(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "mine.py").touch()
    refuse_missing("mine", tmp_path, Path("/no/python"))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "nowhere.train",
            "there is no nowhere: name the folder that holds it with CODE=, or install its package there",
        ),
        ("json.tools", "there is no module json.tools; json has tool"),
        ("timeit.x", "timeit is no package"),
        ("email", "email is a package without a __main__.py"),
        ("folder", "folder is a package without a __main__.py: name one of its modules, such as MODULE=folder.train"),
        ("nowhere:run", "the package nowhere is not installed there"),
        ("pytest:nope", "pytest has no console script nope; it has: py.test, pytest"),
    ],
)
def test_what_is_nowhere_is_refused_and_where_it_was_looked_for_is_said(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "train.py").write_text("if __name__ == '__main__': pass\n")
    with pytest.raises(RingmasterError, match="looked in") as refused:
        refuse_missing(name, tmp_path, PYTHON)
    assert says in str(refused.value) and str(PYTHON) in str(refused.value)
    assert (":" in name) or str(tmp_path) in str(refused.value)
    assert refused.value.exit_code == ExitCode.NOT_STARTED


def test_nothing_of_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site" / "noisy").mkdir(parents=True)
    (tmp_path / "site" / "noisy" / "__init__.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\n")
    (tmp_path / "site" / "noisy" / "train.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    refuse_missing("noisy.train", tmp_path, PYTHON)
    assert not (tmp_path / "imported").exists()


def test_an_interpreter_that_can_not_be_asked_refuses_nothing(tmp_path: Path) -> None:
    refuse_missing("nowhere", tmp_path, Path("/no/python"))
