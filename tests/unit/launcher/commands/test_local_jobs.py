"""`make status`, `logs` and `stop` where this machine is the cluster."""

import json
from pathlib import Path

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.commands import jobs, local_jobs
from launcher.commands.jobs import LogsOptions, Options
from launcher.follow.summary import finish
from launcher.job.folder import JobFolder
from launcher.job.held import held
from tests.support.cluster.cluster_job import FAILED, SUCCEEDED
from tests.support.plans import cluster_plan, facts, plan_for
from tests.support.runs import made


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(local_jobs, "RUNS", tmp_path)
    return tmp_path


def ended(runs: Path, name: str, age: float = 10.0, *, failed: bool = False) -> JobFolder:
    folder = made(runs, name, age)
    finish(folder, plan_for(facts(1)), FAILED if failed else SUCCEEDED, 0.0, print, ended_at=60.0)
    (folder.logs / "node1.log").write_bytes(b"[0] first\n[agent] torchrun's\n[0] caf\xc3\xa9\n")
    return folder


def test_the_default_inventory_is_this_machine(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in (jobs.status, jobs.stop):
        assert verb(Options(inventory="inventory/local.yml")) == ExitCode.SUCCEEDED
        assert capsys.readouterr().out == "no job runs on this machine, in this checkout\n"
    with pytest.raises(RingmasterError, match="make train starts one"):
        jobs.logs(LogsOptions(inventory="inventory/local.yml"))


def test_what_runs_is_shown_and_what_has_ended_by_its_name(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended(runs, "done", failed=True)
    made(runs, "far", 5.0, cluster_plan(name="far"))
    folder = made(runs, "now", 125.0)
    folder.metrics.write_text('{"step": 3, "total_steps": 9, "epoch": 1}\n{"st')
    with held(folder):
        assert local_jobs.status("") == ExitCode.SUCCEEDED
        head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["job", "state", "age", "step", "nodes"]
    assert row.split() == ["now", "running", "2", "min", "05", "s", "3/9,", "epoch", "1", "node1"]
    local_jobs.status("done")
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["done", "failed"]
    local_jobs.status("now")
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["now", "unknown"], "its launcher was killed"
    local_jobs.status("far")
    assert "no job of that name is known" in capsys.readouterr().out


@pytest.mark.parametrize(("failed", "code"), [(False, ExitCode.SUCCEEDED), (True, ExitCode.FAILED)])
def test_the_logs_of_a_job_that_has_ended(
    runs: Path, capsys: pytest.CaptureFixture[str], failed: bool, code: ExitCode
) -> None:
    ended(runs, "older", 99.0)
    ended(runs, "job", failed=failed)
    for name in ("job", ""):
        assert local_jobs.logs(name) == code
        said = capsys.readouterr().out
        assert "node1:0 | first\nnode1:0 | café\n" in said and "torchrun's" not in said
        assert f"job job has ended: {'failed' if failed else 'succeeded'}" in said


def test_the_logs_of_a_job_that_runs(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made(runs, "now", 5.0)
    (folder.logs / "node1.log").write_bytes(b"[0] so far\n")
    with held(folder):
        assert local_jobs.logs("now") == ExitCode.SUCCEEDED
    said = capsys.readouterr().out
    assert "node1:0 | so far" in said and "its launcher shows it live" in said


def test_which_job_is_stopped(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended(runs, "done")
    assert local_jobs.stop("done") == ExitCode.SUCCEEDED
    assert capsys.readouterr().out == "job done has ended: succeeded\n"
    with pytest.raises(RingmasterError, match="NAME=none: no such job of this machine in runs/; known jobs: done"):
        local_jobs.stop("none")
    refused = pytest.raises(RingmasterError, match=r"2 jobs are running \(two, one\): choose one with NAME=")
    with held(made(runs, "one", 5.0)), held(made(runs, "two", 4.0)), refused:
        local_jobs.stop("")


def test_a_launcher_on_another_machine_is_not_signalled(runs: Path) -> None:
    folder = made(runs, "shared", 5.0)
    with held(folder):
        folder.launcher.write_text("1 elsewhere\n")
        with pytest.raises(RingmasterError, match="job shared runs on elsewhere: make stop there") as raised:
            local_jobs.stop("")
    assert raised.value.exit_code == ExitCode.CLUSTER


def test_a_plan_that_can_not_be_used(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made(runs, "job", 5.0)
    folder.plan.write_text(json.dumps({"name": "job", "nodes": [{"container": None}]}))
    with held(folder):
        local_jobs.status("")
    assert "job" in capsys.readouterr().out
    with pytest.raises(RingmasterError, match=r"plan\.json: can't be used"):
        local_jobs.logs("job")
