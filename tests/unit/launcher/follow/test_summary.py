"""summary.json: every key of the contract, null for what the script didn't report."""

import json
from pathlib import Path

import pytest

from launcher.base.errors import ExitCode
from launcher.follow.cause.suspects import root_cause
from launcher.follow.outcome import Outcome
from launcher.follow.summary import finish
from launcher.job.folder import JobFolder, create
from tests.support.cluster.cluster_job import FAILED, STOPPED, UNKNOWN
from tests.support.ends import RAISED, end
from tests.support.plans import facts, plan_for

KEYS = {
    *("name", "state", "exit_code", "nodes", "world_size", "backend", "image", "started_at", "first_step_s", "wall_s"),
    *("restarts", "images_per_s", "test_accuracy", "epochs", "checkpoint", "incidents"),
    "failure",
}


def finished(folder: Path, outcome: Outcome, *records: dict[str, object]) -> dict[str, object]:
    job = JobFolder(path=folder / "job")
    folder.mkdir(exist_ok=True)
    create(job, plan_for(facts(2)))
    (job.checkpoints / "a.pt").touch()
    job.metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    finish(job, plan_for(facts(2)), outcome, 1000.0, print, ended_at=1060.0)
    assert "<html" in job.report.read_text()
    return dict(json.loads(job.summary.read_text()))


def test_a_script_that_reports_nothing(tmp_path: Path) -> None:
    summary = finished(tmp_path, Outcome(state="succeeded", exit_code=ExitCode.SUCCEEDED))
    assert set(summary) == KEYS
    assert [key for key, value in summary.items() if value is None] == [
        *("image", "first_step_s", "images_per_s", "test_accuracy", "epochs", "checkpoint", "failure")
    ]
    assert (summary["nodes"], summary["world_size"], summary["backend"]) == (["node1", "node2"], 2, "gloo")


def test_figures_and_a_checkpoint_relative_to_the_folder(tmp_path: Path) -> None:
    summary = finished(
        tmp_path,
        Outcome(state="stopped", exit_code=ExitCode.INTERRUPTED),
        {"kind": "step", "step": 1, "at": 1002.5},
        {"kind": "epoch", "epoch": 1, "test_accuracy": 0.5, "images_per_s": 10.0},
        {"kind": "event", "event": "checkpoint", "step": 1, "path": str(tmp_path / "job/checkpoints/a.pt")},
    )
    assert (summary["state"], summary["exit_code"]) == ("stopped", 130)
    assert (summary["first_step_s"], summary["test_accuracy"], summary["epochs"]) == (2.5, 0.5, 1)
    assert summary["checkpoint"] == "checkpoints/a.pt"


@pytest.mark.parametrize("at", [2.5, -1.0, 999.0, 1062.0, 1e29, "1002", None])
def test_a_first_step_outside_the_job_is_none_that_is_known(tmp_path: Path, at: object) -> None:
    """A script may count seconds from its own start."""
    ended = Outcome(state="succeeded", exit_code=ExitCode.SUCCEEDED)
    assert finished(tmp_path, ended, {"kind": "step", "step": 1, "at": at})["first_step_s"] is None


@pytest.mark.parametrize("gone", ["job/checkpoints/b.pt", "job/\0", "job/" + 300 * "x", "job/\ud800"])
def test_a_checkpoint_that_is_not_there_is_not_named(tmp_path: Path, gone: str) -> None:
    ended = Outcome(state="stopped", exit_code=ExitCode.INTERRUPTED)
    assert finished(tmp_path / "one", ended, *_in(tmp_path / "one", gone))["checkpoint"] is None
    assert finished(tmp_path / "two", ended, *_in(tmp_path / "two", "job/checkpoints/a.pt", gone))["checkpoint"] == (
        "checkpoints/a.pt"
    )


def test_a_checkpoint_elsewhere_is_named_as_the_script_names_it(tmp_path: Path) -> None:
    ended = Outcome(state="stopped", exit_code=ExitCode.INTERRUPTED)
    event = {"kind": "event", "event": "checkpoint", "path": "/mnt/there/a.pt"}
    assert finished(tmp_path, ended, event)["checkpoint"] == "/mnt/there/a.pt"


def _in(folder: Path, *names: str) -> list[dict[str, object]]:
    return [{"kind": "event", "event": "checkpoint", "path": str(folder / name)} for name in names]


def test_a_disk_that_refuses_changes_nothing_of_the_outcome(tmp_path: Path) -> None:
    job, notes = JobFolder(path=tmp_path / "gone"), list[str]()
    outcome = Outcome(state="succeeded", exit_code=ExitCode.SUCCEEDED)
    assert finish(job, plan_for(facts(1)), outcome, 1000.0, notes.append, ended_at=1060.0)["state"] == "succeeded"
    assert len(notes) == 1 and "can't be written" in notes[0]


def test_how_long_a_job_took_whose_end_nobody_saw_is_not_known(tmp_path: Path) -> None:
    job = JobFolder(path=tmp_path / "job")
    create(job, plan_for(facts(1)))
    assert finish(job, plan_for(facts(1)), UNKNOWN, 1000.0, print, ended_at=None)["wall_s"] is None
    assert ">unknown</span>" in job.report.read_text()


def test_a_summary_stays_that_knows_more(tmp_path: Path) -> None:
    job = JobFolder(path=tmp_path / "job")
    create(job, plan_for(facts(1)))
    for outcome, state in ((UNKNOWN, "unknown"), (FAILED, "failed"), (UNKNOWN, "failed"), (STOPPED, "stopped")):
        told = finish(job, plan_for(facts(1)), outcome, 1000.0, print, ended_at=1060.0)
        assert told["state"] == json.loads(job.summary.read_text())["state"] == state
        assert f">{state}</span>" in job.report.read_text()


def test_a_failure_has_all_its_fields(tmp_path: Path) -> None:
    failure = root_cause([end(1, lines=RAISED, error_at=1.0)])
    summary = finished(tmp_path, Outcome(state="failed", exit_code=ExitCode.FAILED, failure=failure))
    assert summary["failure"] == {
        "node": "node1",
        "rank": 1,
        "exit_code": 1,
        "signal": None,
        "reason": "ValueError: boom",
        "log_tail": list(RAISED),
        "hint": None,
        "suspect": False,
    }
