"""Carry out a planned job: what is written here, and what is left on the nodes. Site and nodes are fakes."""

import json
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.base.errors import ExitCode, RingmasterError, StoppedError
from launcher.base.paths import ROOT
from launcher.commands import train
from launcher.commands.inventory import Inventory
from launcher.commands.options import TrainOptions
from launcher.follow.outcome import Outcome
from launcher.follow.runtime import NotStartedError
from launcher.job.folder import Earlier, JobFolder, create
from launcher.job.plan import Plan
from launcher.job.request import Request
from tests.support.cluster.cluster_job import FAILED, SUCCEEDED, UNKNOWN, Nodes
from tests.support.plans import cluster_plan, facts, plan_for, request

NEVER = replace(FAILED, exit_code=ExitCode.NOT_STARTED, started=False)
LET_GO = Outcome(state="detached", exit_code=ExitCode.TERMINATED)
LOCAL = str(ROOT / "inventory" / "local.yml")
HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class Job:
    """A job that ends with the outcome in `ends`, and records the calls that it gets."""

    folder: JobFolder
    plan: Plan
    ends: Outcome | BaseException = SUCCEEDED
    collects: BaseException | Outcome | None = None
    starts: BaseException | None = None
    survives: bool = True
    clock_s: float = 0.0
    told: list[str] = field(default_factory=list)
    record: Mapping[str, Any] | None = None
    """The summary that its nodes got."""
    ignored: set[Any] = field(default_factory=set)
    """The signal handlers while it is finished."""

    @property
    def runtime(self) -> "Job":
        return self

    def start(self, nodes: Sequence[Any], port: int) -> list[Any]:
        assert (nodes, port) == (self.plan.nodes, self.plan.port)
        self.told.append("start")
        if self.starts:
            raise self.starts
        return []

    def release(self) -> None:
        self.told.append("release")

    def run(self) -> Outcome:
        self.told.append("run")
        return _given(self.ends)

    def mark_stopped(self) -> None:
        self.told.append("mark")

    def collect(self, outcome: Outcome) -> Outcome:
        self.told.append("collect")
        return _given(self.collects or outcome)

    def finish(self, outcome: Outcome, summary: Mapping[str, Any]) -> None:
        self.record = summary
        written = "with" if self.folder.summary.exists() else "without"
        self.told.append(f"close {outcome.state}{'' if outcome.started else ', never ran'}, {written} summary")
        self.ignored = {signal.getsignal(each) for each in HEARD}


def _given(what: Outcome | BaseException) -> Outcome:
    if isinstance(what, BaseException):
        raise what
    return what


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    plan = cluster_plan(2, name="job")
    made = Job(folder=JobFolder(path=tmp_path / "job"), plan=plan)
    create(made.folder, plan)
    monkeypatch.setattr(train, "Follower", lambda *_, on_stop: made)
    before = {each: signal.getsignal(each) for each in HEARD}
    yield made
    for each, handler in before.items():
        signal.signal(each, handler)


def carry_out(job: Any, *, detach: bool = False) -> int:
    site: Any = SimpleNamespace(versions="torch 2.9", job=lambda plan, folder: job)
    return train._carry_out(job.plan, job.folder, site, 1000.0, detach=detach)


def summary(job: Job) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(job.folder.summary.read_text())
    return made


def test_results_are_fetched_the_summary_written_and_then_the_nodes_tidied(job: Job) -> None:
    assert carry_out(job) == ExitCode.SUCCEEDED
    assert job.told == ["run", "collect", "close succeeded, with summary"]
    assert summary(job)["state"] == "succeeded"
    assert job.folder.report.exists()
    assert job.ignored == {signal.SIG_IGN}, "the rest is quick, and must be done"


def test_the_nodes_outcome_wins(job: Job) -> None:
    job.ends, job.collects = FAILED, Outcome(state="stopped", exit_code=ExitCode.TERMINATED)
    assert carry_out(job) == ExitCode.TERMINATED
    assert summary(job)["state"] == "stopped"


def test_times_of_another_clock_are_corrected(job: Job) -> None:
    job.clock_s = 7.0
    job.folder.metrics.write_text(json.dumps({"at": 1012.0, "step": 1, "loss": 1.0}) + "\n")
    carry_out(job)
    assert summary(job)["first_step_s"] == 5.0


def test_a_failure_is_shown_with_the_place_of_its_log(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.ends = FAILED
    assert carry_out(job) == ExitCode.FAILED
    assert "node1 rank 0" in capsys.readouterr().out
    assert summary(job)["failure"]["reason"] == "boom"


def test_an_end_that_nobody_saw_is_said_in_one_line(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.ends = UNKNOWN
    assert carry_out(job) == ExitCode.CLUSTER
    said = capsys.readouterr().out
    assert "nobody knows how the job ended (gone); its logs and checkpoints, as far as they came: " in said
    assert "FAILED" not in said
    assert (summary(job)["state"], summary(job)["exit_code"]) == ("unknown", 4)


def test_a_job_that_never_ran_leaves_nothing_on_its_nodes(job: Job) -> None:
    job.ends = NEVER
    assert carry_out(job) == ExitCode.NOT_STARTED
    assert job.told == ["run", "collect", "close failed, never ran, with summary"]


def test_a_detached_job_is_not_finished(job: Job) -> None:
    job.ends = LET_GO
    assert carry_out(job) == ExitCode.TERMINATED
    assert (job.told, job.folder.summary.exists()) == (["run", "collect"], False)


@pytest.mark.parametrize("error", [ValueError("a mistake of ours"), RingmasterError("node2: lost")])
def test_our_mistake_does_not_end_a_job_that_can_go_on_without_us(
    job: Job, error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    job.ends = error
    with pytest.raises(type(error)):
        carry_out(job)
    assert (job.told, job.folder.summary.exists()) == (["run"], False)
    assert "job job goes on, if it was started: see make status, make logs, make stop" in capsys.readouterr().out


def test_our_mistake_is_recorded_where_it_ends_the_job(job: Job) -> None:
    job.ends, job.survives = ValueError("a mistake of ours"), False
    with pytest.raises(ValueError, match="a mistake of ours"):
        carry_out(job)
    assert (job.told, summary(job)["state"]) == (["run"], "failed")


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), StoppedError()])
@pytest.mark.parametrize("ended", [SUCCEEDED, FAILED])
def test_an_interrupt_during_the_fetch_leaves_the_rest_on_the_nodes(
    job: Job, interrupt: BaseException, ended: Outcome, capsys: pytest.CaptureFixture[str]
) -> None:
    job.ends, job.collects = ended, interrupt
    assert carry_out(job) == ended.exit_code
    assert job.told == ["run", "collect"], "not finished: make logs fetches the rest"
    assert summary(job)["state"] == ended.state
    assert "its results are not all here: make logs NAME=job fetches the rest" in capsys.readouterr().out


def test_other_errors_during_the_fetch_are_not_hidden(job: Job) -> None:
    job.collects = RuntimeError("a mistake of ours")
    with pytest.raises(RuntimeError):
        carry_out(job)


def test_a_disk_that_refuses_the_summary_does_not_change_the_outcome(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (job.folder.summary, job.folder.report):
        path.mkdir()
    assert carry_out(job) == ExitCode.SUCCEEDED
    assert job.told[-1].startswith("close succeeded")
    assert job.record and job.record["state"] == "succeeded", "the nodes keep it all the same"
    assert "can't be written" in capsys.readouterr().out


class TestStartedAlone:
    def test_a_job_is_started_and_left_running(self, job: Job, capsys: pytest.CaptureFixture[str]) -> None:
        assert carry_out(job, detach=True) == ExitCode.SUCCEEDED
        assert job.told == ["start", "release"]
        assert job.folder.plan.exists() and not job.folder.summary.exists()
        assert "job job runs; make logs NAME=job follows it" in capsys.readouterr().out

    @pytest.mark.parametrize(
        "error", [NotStartedError("node2", "job other has it"), KeyboardInterrupt(), StoppedError(), ValueError()]
    )
    def test_a_job_that_can_not_be_started_leaves_nothing(self, job: Job, error: BaseException) -> None:
        job.starts = error
        with pytest.raises(type(error)) as raised:
            carry_out(job, detach=True)
        assert raised.value is error
        assert job.told == ["start", "close failed, never ran, without summary"]
        assert not job.folder.path.exists()


class Place:
    """A site that lacks what it can bring, and then refuses to go on."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def plan(self, folder: JobFolder, request: Request, *, resumes: bool) -> Plan:
        self.told.append("plan")
        return replace(plan_for(facts(2), request), name=folder.name)

    def equip(self, plan: Plan) -> bool:
        self.told.append("equip")
        return True

    def prepare(self, plan: Plan) -> None:
        self.told.append("prepare")
        raise RingmasterError("no further")


class TestBeforeAnythingIsBrought:
    @pytest.fixture
    def place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
        place = Place()
        monkeypatch.setattr(train, "RUNS", tmp_path)
        monkeypatch.setattr(train, "_site", lambda *_: nullcontext(place))
        return place

    def test_the_job_is_planned_again_with_what_was_brought(self, place: Place) -> None:
        with pytest.raises(RingmasterError, match="no further"):
            train.run(TrainOptions(inventory=LOCAL), started_at=1000.0)
        assert place.told == ["plan", "equip", "plan", "prepare"]

    def test_a_dry_run_brings_nothing(self, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
        assert train.run(TrainOptions(inventory=LOCAL, dry_run="1"), started_at=1000.0) == ExitCode.SUCCEEDED
        assert place.told == ["plan"] and "nothing was started" in capsys.readouterr().out

    @pytest.mark.parametrize("dry_run", ["", "1"])
    @pytest.mark.parametrize(
        ("options", "says", "looks"),
        [
            ({"args": "--no-such 1"}, "^ARGS: .*--no-such", []),
            ({"args": "--strategy none"}, "^ARGS: .*--strategy", ["plan"]),
            ({"args": "--dataset folder"}, "^ARGS: .*--dataset", ["plan"]),
            ({"detach": "1"}, "^DETACH=1: processes of this machine", []),
            ({"name": "latest"}, "^NAME=", []),
        ],
    )
    def test_what_is_wrong_is_said_dry_run_or_not(
        self, place: Place, options: dict[str, str], says: str, looks: list[str], dry_run: str
    ) -> None:
        with pytest.raises(RingmasterError, match=says) as raised:
            train.run(TrainOptions(inventory=LOCAL, dry_run=dry_run, **options), started_at=1000.0)
        assert (raised.value.exit_code, place.told) == (ExitCode.USAGE, looks)


def test_a_jobs_file_says_where_its_module_was_found_and_what_latest_was(tmp_path: Path) -> None:
    inventory = Inventory(path=tmp_path / "hosts.yml", hosts=())
    asked = request()  # its code root is /checkout
    text = train._again(TrainOptions(module="pkg.train"), asked, inventory, None)
    assert 'module = "pkg.train"\ncode = "/checkout"\n' in text
    assert "code" not in train._again(TrainOptions(), asked, inventory, None)
    folder = JobFolder(path=tmp_path / "one")
    earlier = Earlier(given="", folder=folder, stored={}, script=None, arguments=(), data=None, launch_style="")
    assert 'resume = "one"\n' in train._again(TrainOptions(resume="latest"), asked, inventory, earlier)
    assert f'resume = "{tmp_path}/one"\n' in train._again(TrainOptions(resume="runs/one"), asked, inventory, earlier)


class TestThePythonOfTheRanks:
    def run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: str) -> list[Request]:
        """Plan a job on a cluster; return what was asked of it."""
        inventory = tmp_path / "hosts.yml"
        inventory.write_text("nodes:\n  hosts:\n    a: {ansible_host: 192.0.2.1}\n")
        asked = []

        class Cluster(Place):
            def plan(self, folder: JobFolder, request: Request, *, resumes: bool) -> Plan:
                asked.append(request)
                raise RingmasterError("no further")

        monkeypatch.setattr(train, "_site", lambda *_: nullcontext(Cluster()))
        with pytest.raises(RingmasterError) as raised:
            train.run(TrainOptions(inventory=str(inventory), **options), started_at=1000.0)
        assert raised.value.exit_code == ExitCode.USAGE
        assert bool(asked) == (str(raised.value) == "no further"), raised.value
        return asked

    def test_is_the_images_on_a_cluster(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.run(tmp_path, monkeypatch, rank_python=sys.executable) == []
        (asked,) = self.run(tmp_path, monkeypatch)
        assert asked.python is None


class OnNodes:
    """A job whose nodes are folders, and whose start fails."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes, self.job = nodes, nodes.job()
        self.plan, self.folder = nodes.plan, nodes.folder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.job, name)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path)
    yield made
    for each in made.jobs:
        each._ended.set()


def refuse(*_: Any) -> Any:
    raise NotStartedError("node2", "its engine refuses the container: no space")


@pytest.mark.parametrize("detach", [True, False])
def test_a_start_that_fails_leaves_no_folder_on_any_node(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, detach: bool
) -> None:
    asked: Any = OnNodes(nodes)
    monkeypatch.setattr(asked.job.runtime, "start", refuse)
    before = {each: signal.getsignal(each) for each in HEARD}
    try:
        with pytest.raises(NotStartedError) if detach else nullcontext():
            assert carry_out(asked, detach=detach) == ExitCode.NOT_STARTED
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert [nodes.left(name) for name in nodes.dirs] == [[], []]
    assert nodes.folder.path.exists() != detach, "a job that was followed has a summary here"
