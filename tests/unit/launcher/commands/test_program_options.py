"""SCRIPT, MODULE and CODE: which program they name, from which folder, and after which job."""

from pathlib import Path

import pytest

from launcher.base import caller
from launcher.base.errors import RingmasterError
from launcher.base.paths import ROOT
from launcher.commands.options import TrainOptions, to_request
from launcher.job.folder import Earlier, JobFolder
from launcher.job.program import Program


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the user calls from, with a package, a script, data and secrets."""
    folder = tmp_path / "my project"
    (folder / "src" / "pkg").mkdir(parents=True)
    for name in ("src/pkg/__init__.py", "src/pkg/train.py", "train.py", "data"):
        (folder / name).touch()
    (folder / "secrets").write_text("TOKEN=x\n")
    monkeypatch.setattr(caller, "folder", lambda: folder)
    return folder


def chosen(from_job: Earlier | None = None, **options: str) -> Program:
    return to_request(TrainOptions(**options), from_job).program


def earlier(folder: Path, **fields: str | None) -> Earlier:
    job = JobFolder(path=folder)
    plan = {"script": None, "arguments": ("--lr", "1"), "data": None, "launch_style": "", **fields}
    return Earlier(given="RESUME=job", stored={}, folder=job, **plan)


def test_paths_mean_the_callers_folder(project: Path) -> None:
    request = to_request(TrainOptions(script="train.py", data="data", secrets="secrets"), None)
    assert (request.program.script, request.data, request.secrets) == (
        *(project / "train.py", project / "data"),
        project / "secrets",
    )
    assert chosen(module="pkg.train").root == project
    assert chosen(script="src/pkg/train.py", code="src").root == project / "src"


def test_a_script_beside_the_callers_folder_has_its_own_root(project: Path) -> None:
    (project.parent / "x").mkdir()
    (project.parent / "x" / "train.py").touch()
    assert chosen(script="../x/train.py").root == project.parent / "x"


def test_from_the_checkout_two_dots_lead_out_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "check out" / ".git").mkdir(parents=True)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "train.py").touch()
    monkeypatch.setattr(caller, "folder", lambda: tmp_path / "check out")
    assert chosen(script="../x/train.py").root == tmp_path / "x", "not the checkout, of which 577 files would travel"


@pytest.mark.parametrize("name", ["script", "data", "secrets", "code"])
def test_a_path_that_only_the_checkout_has_is_refused_with_both(project: Path, name: str) -> None:
    options = {"script": "train.py", name: "Makefile"}
    with pytest.raises(RingmasterError, match=name.upper()) as refused:
        chosen(**options)
    assert f"in {project} (there is {ROOT / 'Makefile'}: give this path if you mean it)" in str(refused.value)


@pytest.mark.parametrize("name", ["script", "data", "secrets", "code"])
def test_a_tilde_that_no_shell_expanded(project: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project))
    path = {"script": "~/train.py", "data": "~/data", "secrets": "~/secrets", "code": "~"}[name]
    request = to_request(TrainOptions(**{"script": "train.py", name: path}), None)
    assert request.program.script == project / "train.py"
    assert name != "data" or request.data == project / "data"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"script": "train.py", "module": "pkg.train"}, "give one of them"),
        ({"code": "src"}, "the bundled trainer needs no code"),
        ({"module": "pkg.none"}, "there is no module pkg.none"),
    ],
)
def test_what_contradicts_itself_is_refused(project: Path, options: dict[str, str], says: str) -> None:
    with pytest.raises(RingmasterError, match=says):
        chosen(**options)


class TestResume:
    def test_a_module_and_its_code_are_repeated_from_anywhere(
        self, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = earlier(tmp_path, module="pkg.train", code_root=str(project), launch_style="--local_rank")
        monkeypatch.setattr(caller, "folder", lambda: tmp_path)
        program = chosen(job)
        assert (program.module, program.root, program.arguments) == ("pkg.train", project, ("--lr", "1"))
        assert program.local_rank_flag == "--local_rank", "as it was started"

    def test_a_script_and_the_code_that_was_named_for_it(self, project: Path, tmp_path: Path) -> None:
        script = str(project / "src" / "pkg" / "train.py")
        assert chosen(earlier(tmp_path, script=script, code_root=str(project / "src"))).root == project / "src"
        assert chosen(earlier(tmp_path, script=script)).root == project / "src" / "pkg"
        assert chosen(earlier(tmp_path, script=script), code=str(project)).root == project

    def test_another_program_brings_its_own(self, project: Path, tmp_path: Path) -> None:
        job = earlier(tmp_path, module="pkg.gone", code_root=str(tmp_path / "gone"))
        assert chosen(job, script="train.py").root == project
        assert chosen(job, module="pkg.train").root == project

    def test_code_that_is_gone_is_said(self, tmp_path: Path) -> None:
        with pytest.raises(RingmasterError, match="no such folder"):
            chosen(earlier(tmp_path, module="pkg.train", code_root=str(tmp_path / "gone")))
