"""The code root: found, or named with CODE and checked."""

from pathlib import Path

import pytest

from launcher.base import caller
from launcher.base.errors import RingmasterError
from launcher.job import code_root
from launcher.job.program import user_script


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "pro ject" / "tools" / "train.py"
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def test_code_takes_the_place_of_the_scripts_own_root(script: Path) -> None:
    project = script.parents[1]
    (project / "src").mkdir()
    program = user_script(script, (), root=project)
    assert (program.root, program.script, program.importable) == (project, script, ("", "src"))
    assert program.words(Path("/job/code")) == ("-u", "/job/code/tools/train.py")
    assert user_script(script, ()).importable == (), "without CODE it is as bare torchrun has it"


def test_a_script_behind_a_link_is_still_in_it(script: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(script.parents[1])
    through = tmp_path / "link" / "tools" / "train.py"
    assert user_script(through, (), root=script.parents[1]).script == script
    assert user_script(script, (), root=tmp_path / "link").script == through


def test_a_script_outside_of_it_is_refused_with_the_way(script: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(RingmasterError, match="give a folder that holds the script, or leave CODE out"):
        user_script(script, (), root=tmp_path / "other")


def test_code_has_to_be_a_folder(script: Path) -> None:
    assert code_root.given(str(script.parent)) == script.parent
    for name, why in ((str(script), "is a file"), (str(script.parent / "no"), "no such folder")):
        with pytest.raises(RingmasterError, match=why):
            code_root.given(name)


class TestCallersOwn:
    def called_from(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(caller, "folder", lambda: folder)
        return code_root.callers_own()

    def test_it_is_the_git_top_else_the_folder(self, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.called_from(script.parent, monkeypatch) == script.parent
        (script.parents[1] / ".git").write_text("gitdir: elsewhere\n")  # as in a work tree
        assert self.called_from(script.parent, monkeypatch) == script.parents[1]

    def test_behind_a_link_into_a_repository_too(
        self, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (script.parents[1] / ".git").mkdir()
        (tmp_path / "link").symlink_to(script.parent)
        assert self.called_from(tmp_path / "link", monkeypatch) == script.parents[1]

    def test_nobody_means_the_home_folder(self, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(script.parent))
        for folder in (script.parent, Path("/")):
            with pytest.raises(RingmasterError, match="CODE=<folder>"):
                self.called_from(folder, monkeypatch)


def test_a_notebook_is_refused_with_the_way(script: Path) -> None:
    notebook = script.with_name("my model.IPYNB")
    notebook.write_text("{}")
    with pytest.raises(
        RingmasterError, match=r"jupyter nbconvert --to script '.*my model.IPYNB'`, then SCRIPT='.*.py'"
    ):
        user_script(notebook, ())
