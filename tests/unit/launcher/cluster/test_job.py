"""A job on a cluster as it ends: what is fetched, and what stays on the nodes. The nodes are folders here."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from launcher.base.errors import ExitCode, StoppedError
from launcher.cluster import job as cluster_job
from launcher.cluster.job import ClusterJob
from launcher.cluster.transfer import download
from launcher.follow.cause.failure import Failure
from launcher.follow.incidents import TOLD_TO_GO, Incident
from launcher.follow.outcome import Outcome
from launcher.follow.runtime import NotStartedError
from launcher.follow.summary import finish
from launcher.job.folder import JobFolder
from tests.support.cluster.cluster_job import FAILED, STOPPED, SUCCEEDED, UNKNOWN, Nodes
from tests.support.cluster.engine import refusal
from tests.support.cluster.live_engine import until

INCIDENT = Incident(at=30.0, node="node2", rank=None, kind=TOLD_TO_GO, action="stopped", lost_s=None)


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


@dataclass
class SlowLine:
    """The first node's line: a checkpoint comes in blocks, one of which is here and the rest waits for `goes_on`."""

    nodes: Nodes
    most: int = 0
    """Transfers at the same moment, at most."""
    begun: threading.Event = field(default_factory=threading.Event)
    goes_on: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        client = self.nodes.remotes["node1"].client
        whole, under_way = client.getfo, []

        def getfo(path: str, *arguments: Any, **how: Any) -> int:
            under_way.append(path)
            self.most = max(self.most, len(under_way))
            try:
                return int(whole(path, *arguments, **how))
            finally:
                under_way.remove(path)

        def after_block(path: str) -> None:
            self.begun.set()
            assert self.goes_on.wait(60)

        client.block, client.after_block, client.getfo = 4, after_block, getfo
        self.nodes.write("node1", "checkpoints/step-1.pt", "0123456789")


def collecting(job: ClusterJob, outcome: Outcome) -> Future[Outcome]:
    pool = ThreadPoolExecutor(max_workers=1)
    future = pool.submit(job.collect, outcome)
    pool.shutdown(wait=False)
    until(job._ended.is_set)
    return future


@pytest.fixture
def slow(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowLine]:
    monkeypatch.setattr(cluster_job, "_METRICS_S", 0.01)
    monkeypatch.setattr(cluster_job, "_CHECKPOINTS_S", 0.01)
    monkeypatch.setattr(download, "_PROGRESS_S", 0.0)
    line = SlowLine(nodes)
    yield line
    line.goes_on.set()


def test_a_checkpoint_that_is_on_its_way_at_the_end_is_waited_for_with_a_word(nodes: Nodes, slow: SlowLine) -> None:
    job = nodes.job()
    assert slow.begun.wait(60)
    assert nodes.printed == [], "of what comes while it runs nothing is said"
    ended = collecting(job, SUCCEEDED)
    slow.goes_on.set()
    assert ended.result(60) == SUCCEEDED
    assert slow.most == 1, "it was not fetched a second time meanwhile"
    assert nodes.here("checkpoints/step-1.pt") == "0123456789"
    assert "node1: fetching checkpoints/step-1.pt: 8 bytes of 10 bytes" in nodes.printed
    assert [line for line in nodes.printed if "fetching checkpoints/step-1.pt" not in line] == []


def test_who_lets_the_job_go_on_waits_for_no_checkpoint(nodes: Nodes, slow: SlowLine) -> None:
    job = nodes.job()
    assert slow.begun.wait(60)
    ended = collecting(job, Outcome(state="detached", exit_code=ExitCode.INTERRUPTED))
    slow.goes_on.set()
    assert ended.result(60).state == "detached"
    assert nodes.remotes["node1"].client.fetched == [], "it ended at the next block"
    assert (nodes.here("checkpoints/step-1.pt"), nodes.printed) == (None, [])


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, StoppedError])
def test_who_is_told_to_end_while_results_come_fetches_nothing_more(
    nodes: Nodes, interrupt: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = nodes.job()
    monkeypatch.setattr(job, "_is_marked", Mock(side_effect=interrupt))
    with pytest.raises(interrupt):
        job.collect(SUCCEEDED)


def test_whoever_lets_it_go_on_fetches_and_tidies_nothing(nodes: Nodes) -> None:
    nodes.write("node2", "trace.json")
    detached = Outcome(state="detached", exit_code=ExitCode.INTERRUPTED)
    job = nodes.job()
    assert job.collect(detached) == detached
    assert nodes.here("nodes/node2/trace.json") is None
    assert "secrets" in nodes.left("node1")


def test_who_was_stopped_by_somebody_else_did_not_fail(nodes: Nodes) -> None:
    nodes.job().mark_stopped()
    assert [(path / "job/stopped").exists() for path in nodes.dirs.values()] == [True, True]
    (nodes.dirs["node2"] / "job/stopped").unlink()
    assert nodes.job().collect(FAILED) == STOPPED


def test_that_somebody_stopped_it_others_know_though_its_results_were_not_awaited(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C, and once more while results are downloaded: its ranks may have ended in any way."""
    job = nodes.job()
    monkeypatch.setattr(job, "_end_fetching", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        job.collect(Outcome(state="stopped", exit_code=ExitCode.INTERRUPTED))
    assert [nodes.job().collect(each) for each in (FAILED, SUCCEEDED)] == [STOPPED, STOPPED]
    told = Outcome(state="stopped", exit_code=ExitCode.TERMINATED, incidents=(INCIDENT,))
    assert nodes.job().collect(told) == told, "who knows why it was stopped doesn't forget it"


def test_a_stop_by_somebody_else_that_cost_steps_is_a_failure(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    failure = Failure(
        node="node1", rank=0, exit_code=4, signal=None, reason="could not be saved", log_tail=(), hint=None
    )
    unsaved = Outcome(state="failed", exit_code=ExitCode.CLUSTER, failure=failure)
    nodes.job().mark_stopped()
    assert nodes.job().collect(unsaved) == unsaved
    monkeypatch.setattr(nodes, "plan", replace(nodes.plan, script="train.py"))
    assert nodes.job().collect(unsaved) == STOPPED, "a script may mean anything by a 4"


def test_who_stops_it_sees_whether_it_had_failed_before(nodes: Nodes) -> None:
    job = nodes.job()
    job.mark_stopped()
    assert job.collect(FAILED) == FAILED


def test_a_failure_stays_one(nodes: Nodes) -> None:
    assert nodes.job().collect(FAILED) == FAILED


def test_what_stays_on_the_nodes(nodes: Nodes) -> None:
    nodes.write("node1", "metrics.jsonl", "{}\n")
    nodes.folder.summary.write_text('{"state": "succeeded"}')
    for name in nodes.dirs:
        (nodes.folder.logs / f"{name}.log").write_text(f"[0] {name}\n")
    job = nodes.job()
    nodes.end(job, SUCCEEDED)
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
    nodes.end(job, SUCCEEDED)
    assert marks == {(True, True)} and nodes.containers() == [[], []]


def test_a_container_that_can_not_be_removed_is_said(nodes: Nodes) -> None:
    nodes.remotes["node2"].fake.refuses["remove"] = refusal(500, "device or resource busy")
    job = nodes.job()
    nodes.end(job, SUCCEEDED)
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
    nodes.end(job, SUCCEEDED)
    where = nodes.dirs["node1"] / "job/run"
    assert nodes.printed == [f"node1: stays there, in {where}: {'x' * 300} (File name too long)"]
    assert nodes.here("nodes/node2/fine") == "x" and "collected" in nodes.left("node1")


def test_a_run_folder_that_is_away_is_not_taken_for_an_empty_one(nodes: Nodes) -> None:
    nodes.write("node2", "trace.json")
    (nodes.dirs["node2"] / "job/run").rename(nodes.dirs["node2"] / "job/elsewhere")
    job = nodes.job()
    nodes.end(job, SUCCEEDED)
    (line,) = nodes.printed
    assert line.startswith("node2: not all results could be fetched (")
    assert "elsewhere/trace.json" in nodes.left("node2") and "collected" not in nodes.left("node2")


def record(nodes: Nodes, node: str, ended: Outcome) -> None:
    """Have another launcher leave its summary on a node."""
    finish(JobFolder(path=nodes.folder.path), nodes.plan, ended, 0.0, print, ended_at=9.0)
    nodes.folder.summary.rename(nodes.dirs[node] / "job/summary.json")


@pytest.mark.parametrize("ended", [SUCCEEDED, FAILED, STOPPED])
def test_an_end_that_nobody_saw_here_is_told_by_the_summary_of_somebody_who_did(nodes: Nodes, ended: Outcome) -> None:
    record(nodes, "node1", UNKNOWN)
    record(nodes, "node2", ended)
    (nodes.dirs["node1"] / "job/stopped").touch()
    assert nodes.job().collect(UNKNOWN) == ended


def test_or_by_the_mark_of_somebody_who_stopped_it(nodes: Nodes) -> None:
    (nodes.dirs["node2"] / "job/stopped").touch()
    assert nodes.job().collect(UNKNOWN) == STOPPED


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"state": "succeeded", "exit_code": 77, "failure": null}'])
def test_what_nobody_has_written_down_nobody_knows(nodes: Nodes, content: str | None) -> None:
    if content is not None:
        (nodes.dirs["node1"] / "job/summary.json").write_text(content)
    assert nodes.job().collect(UNKNOWN) == UNKNOWN


def test_a_summary_counts_only_where_the_end_was_not_seen(nodes: Nodes) -> None:
    record(nodes, "node1", SUCCEEDED)
    assert nodes.job().collect(FAILED) == FAILED


def refuse_to_close(nodes: Nodes, node: str) -> None:
    """Let its disk refuse the record."""
    (nodes.dirs[node] / "job/.closing").write_text("in the way")


def test_where_the_end_could_not_be_recorded_the_container_stays_and_tells_it(nodes: Nodes) -> None:
    refuse_to_close(nodes, "node2")
    job = nodes.job()
    assert nodes.end(job, FAILED) == FAILED
    assert nodes.containers() == [[], ["job"]]
    assert "collected" in nodes.left("node1") and not {"collected", "summary.json"} & set(nodes.left("node2"))
    assert {"secrets", "code/train.py"} <= set(nodes.left("node2")), "nothing was removed first"
    (line,) = nodes.printed
    assert line.startswith("node2: how the job ended could not be recorded there (/")
    assert line.endswith("), so what is left of it stays; make logs NAME=job tries again")


def test_a_line_that_breaks_while_it_is_recorded_takes_no_container(nodes: Nodes) -> None:
    job = nodes.job()
    known = job.collect(FAILED)
    nodes.remotes["node2"].alive = False
    job.finish(known, {"state": "failed"})
    assert nodes.containers() == [[], ["job"]]


def test_a_record_that_knows_more_stays(nodes: Nodes) -> None:
    record(nodes, "node2", FAILED)
    job = nodes.job()
    job.collect(UNKNOWN)
    job.finish(UNKNOWN, {"state": "unknown"})
    told = [json.loads((path / "job/summary.json").read_text())["state"] for path in nodes.dirs.values()]
    assert told == ["unknown", "failed"] and nodes.containers() == [[], []]


def test_a_start_leaves_a_sign_on_each_node_before_it(nodes: Nodes) -> None:
    for remote in nodes.remotes.values():
        remote.fake.inspected.clear()
        remote.fake.refuses["start"] = refusal(500, "no device driver")
    with pytest.raises(NotStartedError):
        nodes.job().runtime.start(nodes.plan.nodes, nodes.plan.port)
    assert [(path / "job/started").exists() for path in nodes.dirs.values()] == [True, True]


def test_a_node_that_can_not_take_the_sign_starts_nothing(nodes: Nodes) -> None:
    for remote in nodes.remotes.values():
        remote.fake.inspected.clear()
    (nodes.dirs["node2"] / "job/started").mkdir()
    with pytest.raises(NotStartedError, match=r"node2: .*started: can't be written"):
        nodes.job().runtime.start(nodes.plan.nodes, nodes.plan.port)
    assert nodes.containers() == [[], []]


def test_of_a_job_that_never_ran_nothing_stays(nodes: Nodes) -> None:
    never = replace(FAILED, exit_code=ExitCode.NOT_STARTED, started=False)
    nodes.write("node2", "trace.json")
    job = nodes.job()
    nodes.end(job, never)
    assert [list(path.glob("job")) for path in nodes.dirs.values()] == [[], []]
    assert nodes.here("nodes/node2/trace.json") is None


def test_of_another_launchers_job_of_that_name_all_stays(nodes: Nodes) -> None:
    job = nodes.job(whose="not theirs")
    nodes.end(job, replace(FAILED, exit_code=ExitCode.NOT_STARTED, started=False))
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
    nodes.end(job, SUCCEEDED)
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
