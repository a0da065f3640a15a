"""`make clean-runs`: what it says, what it asks, and what is gone then."""

import io
from pathlib import Path

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.commands import clean_runs
from launcher.commands.clean_runs import Options
from launcher.commands.flags import flags_of
from launcher.job.old_runs import Run
from tests.support.runs import made


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(clean_runs, "RUNS", tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    for number in range(25):
        made(tmp_path, f"job{number:02d}", 100.0 - number)
    return tmp_path


def left(runs: Path) -> int:
    return len([path for path in runs.iterdir() if not path.is_symlink()])


def test_twenty_stay_and_the_others_go_unasked_with_yes(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert clean_runs.run(Options(yes="1")) == ExitCode.SUCCEEDED
    said = capsys.readouterr().out
    assert "of 25 jobs in runs/, the newest 20 stay, and 5 would go (" in said and "job00" in said and "kB)" in said
    assert sorted(path.name for path in runs.iterdir())[0] == "job05" and left(runs) == 20
    assert clean_runs.run(Options()) == ExitCode.SUCCEEDED
    assert "nothing to remove: runs/ has 20 job(s)" in capsys.readouterr().out


def test_keep_0_keeps_what_latest_means(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert clean_runs.run(Options(keep="0", yes="1")) == ExitCode.SUCCEEDED
    assert [path.name for path in runs.iterdir() if not path.is_symlink()] == ["job24"]
    assert "1 more may still run, or latest means it" in capsys.readouterr().out
    assert (runs / "latest").resolve().name == "job24"


@pytest.mark.parametrize(
    ("answer", "stay"), [("y\n", 20), ("Yes\n", 20), ("n\n", 25), ("\n", 25), ("", 25), ("yesno", 25)]
)
def test_a_terminal_is_asked(runs: Path, monkeypatch: pytest.MonkeyPatch, answer: str, stay: int) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    assert clean_runs.run(Options()) == ExitCode.SUCCEEDED
    assert left(runs) == stay


def test_without_a_terminal_nothing_is_removed(runs: Path) -> None:
    with pytest.raises(RingmasterError, match="no terminal to ask on, and nothing was removed: YES=1"):
        clean_runs.run(Options())
    assert left(runs) == 25


@pytest.mark.parametrize("options", [Options(keep="-1"), Options(keep="all"), Options(keep="1.5"), Options(yes="y")])
def test_values_that_can_not_be_right(runs: Path, options: Options) -> None:
    with pytest.raises(RingmasterError):
        clean_runs.run(options)
    assert left(runs) == 25


def test_what_can_not_be_removed_is_named(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(run: Run) -> bool:
        raise PermissionError(13, "Permission denied", str(run.folder.logs))

    monkeypatch.setattr(clean_runs, "remove", refuse)
    with pytest.raises(RingmasterError, match=r"/job04/logs: can't be removed \(Permission denied\)"):
        clean_runs.run(Options(yes="1"))


def test_its_flags() -> None:
    assert set(flags_of("clean-runs")) == {"keep", "yes", "--debug"}
