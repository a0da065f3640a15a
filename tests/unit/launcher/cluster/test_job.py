"""A job on a cluster as it ends: what is fetched, and what stays on the nodes. The nodes are folders here."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.base.errors import ExitCode
from launcher.cluster import job as cluster_job
from launcher.follow.outcome import Outcome
from launcher.follow.summary import finish
from launcher.job.folder import JobFolder
from tests.support.cluster_job import FAILED, SUCCEEDED, Nodes
from tests.support.engine import refusal
from tests.support.live_engine import until


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path)
    yield nodes
    for job in nodes.jobs:
        job._ended.set()  # ends the thread that fetches


def test_results_come_home_each_nodes_to_its_place(nodes: Nodes) -> None:
    nodes.write("node1", "metrics.jsonl", '{"step": 1}\n')
    nodes.write("node1", "checkpoints/step-1.pt", "one")
    nodes.write("node2", "trace.json", "t")
    assert nodes.job().collect(SUCCEEDED) == SUCCEEDED
    assert (nodes.here("metrics.jsonl"), nodes.here("checkpoints/step-1.pt")) == ('{"step": 1}\n', "one")
    assert (nodes.here("nodes/node2/trace.json"), nodes.printed) == ("t", [])


def test_figures_come_while_it_runs_and_checkpoints_now_and_then(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_job, "_METRICS_S", 0.01)
    monkeypatch.setattr(cluster_job, "_CHECKPOINTS_S", 0.01)
    nodes.job()
    nodes.write("node1", "metrics.jsonl", '{"step": 1}\n')
    nodes.write("node1", "checkpoints/step-1.pt", "one")
    nodes.write("node1", "checkpoints/step-2.pt.part", "tw")
    until(lambda: nodes.here("metrics.jsonl") and nodes.here("checkpoints/step-1.pt"))
    nodes.remotes["node1"].alive = False
    nodes.write("node1", "metrics.jsonl", '{"step": 1}\n{"step": 2}\n')
    nodes.remotes["node1"].alive = True
    until(lambda: nodes.here("metrics.jsonl") == '{"step": 1}\n{"step": 2}\n')
    assert nodes.here("checkpoints/step-2.pt.part") is None


def test_whoever_lets_it_go_on_fetches_and_tidies_nothing(nodes: Nodes) -> None:
    nodes.write("node2", "trace.json")
    detached = Outcome(state="detached", exit_code=ExitCode.INTERRUPTED)
    job = nodes.job()
    assert job.collect(detached) == detached
    assert nodes.here("nodes/node2/trace.json") is None
    assert "secrets" in nodes.left("node1")


def test_who_was_stopped_by_somebody_else_did_not_fail(nodes: Nodes) -> None:
    job = nodes.job()
    job.mark("stopped")
    assert [(path / "job/stopped").exists() for path in nodes.dirs.values()] == [True, True]
    (nodes.dirs["node2"] / "job/stopped").unlink()
    assert job.collect(FAILED) == Outcome(state="stopped", exit_code=ExitCode.TERMINATED)


def test_a_failure_stays_one(nodes: Nodes) -> None:
    assert nodes.job().collect(FAILED) == FAILED


def test_what_stays_on_the_nodes(nodes: Nodes) -> None:
    nodes.write("node1", "metrics.jsonl", "{}\n")
    nodes.folder.summary.write_text('{"state": "succeeded"}')
    for name in nodes.dirs:
        (nodes.folder.logs / f"{name}.log").write_text(f"[0] {name}\n")
    job = nodes.job()
    job.finish(job.collect(SUCCEEDED))
    kept = ["collected", "log", "node", "plan.json", "run/metrics.jsonl", "summary.json", "token"]
    assert nodes.left("node1") == kept
    assert nodes.left("node2") == [name for name in kept if not name.startswith("run/")]
    assert (nodes.dirs["node2"] / "job/log").read_text() == "[0] node2\n"
    assert nodes.containers() == [[], []]


def test_its_containers_tell_how_it_ended_until_all_else_does(nodes: Nodes) -> None:
    def closed() -> None:
        marks.add(tuple((path / "job/collected").exists() for path in nodes.dirs.values()))

    marks: set[tuple[bool, ...]] = set()
    for remote in nodes.remotes.values():
        remote.before_removal = closed
    job = nodes.job()
    job.finish(job.collect(SUCCEEDED))
    assert marks == {(True, True)} and nodes.containers() == [[], []]


def test_a_container_that_can_not_be_removed_is_said(nodes: Nodes) -> None:
    nodes.remotes["node2"].fake.refuses["remove"] = refusal(500, "device or resource busy")
    job = nodes.job()
    job.finish(job.collect(SUCCEEDED))
    assert nodes.containers() == [[], ["job"]]
    assert nodes.printed == ["node2: the job's container could not be removed; make stop NAME=job does it"]


def test_what_has_a_name_of_ours_goes_to_its_nodes_folder(nodes: Nodes) -> None:
    ours = nodes.here("plan.json")
    for name in ("plan.json", "summary.json", "logs/node1.log", "nodes/node2/x"):
        nodes.write("node1", name, "theirs")
    nodes.write("node2", "plan.json", "theirs")
    nodes.job().collect(SUCCEEDED)
    assert nodes.here("plan.json") == ours and nodes.here("summary.json") is None
    for name in ("plan.json", "summary.json", "logs/node1.log", "nodes/node2/x"):
        assert nodes.here(f"nodes/node1/{name}") == "theirs"
    assert nodes.here("nodes/node2/plan.json") == "theirs" and nodes.here("nodes/node2/x") is None


def test_what_stays_on_a_node_for_its_name_is_said(nodes: Nodes) -> None:
    nodes.write("node1", "strange")
    nodes.write("node2", "fine")
    nodes.remotes["node1"].client.names["strange"] = "x" * 300
    job = nodes.job()
    job.finish(job.collect(SUCCEEDED))
    where = nodes.dirs["node1"] / "job/run"
    assert nodes.printed == [f"node1: stays there, in {where}: {'x' * 300} (File name too long)"]
    assert nodes.here("nodes/node2/fine") == "x" and "collected" in nodes.left("node1")


def test_a_run_folder_that_is_away_is_not_taken_for_an_empty_one(nodes: Nodes) -> None:
    nodes.write("node2", "trace.json")
    (nodes.dirs["node2"] / "job/run").rename(nodes.dirs["node2"] / "job/elsewhere")
    job = nodes.job()
    job.finish(job.collect(SUCCEEDED))
    (line,) = nodes.printed
    assert line.startswith("node2: not all results could be fetched (")
    assert "elsewhere/trace.json" in nodes.left("node2") and "collected" not in nodes.left("node2")


@pytest.mark.parametrize("ended", [SUCCEEDED, FAILED, Outcome(state="stopped", exit_code=ExitCode.TERMINATED)])
def test_of_containers_that_somebody_else_has_cleared_away_the_summary_tells(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, ended: Outcome
) -> None:
    monkeypatch.setattr(cluster_job.DockerRuntime, "gone", True)
    finish(JobFolder(path=nodes.folder.path), nodes.plan, ended, 0.0, print)
    nodes.folder.summary.rename(nodes.dirs["node2"] / "job/summary.json")
    assert nodes.job().collect(SUCCEEDED) == ended


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"state": "succeeded", "exit_code": 77, "failure": null}'])
def test_what_nobody_has_written_down_nobody_knows(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    monkeypatch.setattr(cluster_job.DockerRuntime, "gone", True)
    if content is not None:
        (nodes.dirs["node1"] / "job/summary.json").write_text(content)
    outcome = nodes.job().collect(SUCCEEDED)
    assert (outcome.state, outcome.exit_code) == ("failed", ExitCode.CLUSTER)
    assert outcome.failure and outcome.failure.reason == "its containers are gone, so nobody knows how it ended"


def test_a_summary_counts_only_where_the_containers_are_gone(nodes: Nodes) -> None:
    (nodes.dirs["node1"] / "job/summary.json").write_text('{"state": "succeeded", "exit_code": 0, "failure": null}')
    assert nodes.job().collect(FAILED) == FAILED


def test_of_a_job_that_never_ran_nothing_stays(nodes: Nodes) -> None:
    never = replace(FAILED, exit_code=ExitCode.NOT_STARTED, started=False)
    nodes.write("node2", "trace.json")
    job = nodes.job()
    job.finish(job.collect(never))
    assert [list(path.glob("job")) for path in nodes.dirs.values()] == [[], []]
    assert nodes.here("nodes/node2/trace.json") is None


def test_of_another_launchers_job_of_that_name_all_stays(nodes: Nodes) -> None:
    job = nodes.job(whose="not theirs")
    job.finish(job.collect(replace(FAILED, exit_code=ExitCode.NOT_STARTED, started=False)))
    assert "secrets" in nodes.left("node1") and "secrets" in nodes.left("node2")
    assert nodes.containers() == [["job"], ["job"]]


def out_of_reach(nodes: Nodes) -> None:
    nodes.remotes["node2"].alive = False


def never_reached(nodes: Nodes) -> None:
    del nodes.remotes["node2"]


@pytest.mark.parametrize("how", [out_of_reach, never_reached])
def test_results_of_a_node_out_of_reach_stay_there_until_they_are_fetched(
    nodes: Nodes, how: Callable[[Nodes], None]
) -> None:
    nodes.write("node1", "metrics.jsonl", "{}\n")
    nodes.write("node2", "trace.json")
    how(nodes)
    job = nodes.job()
    job.finish(job.collect(SUCCEEDED))
    assert nodes.here("metrics.jsonl") == "{}\n", "the other one's came"
    assert "collected" in nodes.left("node1") and "collected" not in nodes.left("node2")
    assert "run/trace.json" in nodes.left("node2")
    assert nodes.remotes["node1"].fake.containers_of == ["job"], "which tells how the job ended"
    (line,) = nodes.printed
    assert line.startswith("node2: not all results could be fetched (") and line.endswith("); make logs NAME=job")


def test_what_somebody_else_left_of_a_closed_job_is_fetched_and_ours_is_kept(nodes: Nodes) -> None:
    (nodes.folder.logs / "node1.log").write_text("ours")
    for name, path in nodes.dirs.items():
        (path / "job/log").write_text(f"[0] {name}\n")
        (path / "job/summary.json").write_text(json.dumps({"state": "succeeded"}))
    nodes.job().fetch_closed()
    assert (nodes.here("logs/node1.log"), nodes.here("logs/node2.log")) == ("ours", "[0] node2\n")
    assert nodes.here("summary.json") == '{"state": "succeeded"}'


def test_what_nobody_left_is_no_error(nodes: Nodes) -> None:
    never_reached(nodes)
    nodes.job().fetch_closed()
    assert (list(nodes.folder.logs.iterdir()), nodes.here("summary.json"), nodes.printed) == ([], None, [])
