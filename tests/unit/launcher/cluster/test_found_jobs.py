"""The jobs that nodes know of: what container and folder mean together, and which job NAME= chooses."""

import json
from pathlib import Path
from typing import Any

import pytest
from docker.errors import DockerException

from launcher.base.errors import ExitCode, RingmasterError
from launcher.cluster import found_jobs
from launcher.cluster.found_jobs import FoundJob, Part, choose_job, find_jobs, plan_of
from tests.support.cluster.found_jobs import ENDED, FETCHED, Node, folder, job, there
from tests.support.plans import cluster_plan

RUNS = Part(container=there("running"), folder=folder(), now=160.0)
GONE = Part(folder=folder(), now=100.0 + found_jobs._PLACING_S)
PRUNED = Part(folder=folder(started=True), now=160.0)
FAILED = Part(container=there("exited", 1, 150.0), folder=folder(started=True), now=160.0)
PLACED = Part(folder=folder(), now=160.0)
MADE = Part(container=there("created"), folder=folder(), now=160.0)


@pytest.mark.parametrize(
    ("parts", "state", "runs", "is_open"),
    [
        ((RUNS, RUNS), "running", True, True),
        ((RUNS, ENDED), "running", True, True),
        ((Part(container=there("created"), folder=folder()), RUNS), "starting", True, True),
        ((Part(container=there("paused"), folder=folder()), RUNS), "frozen", True, True),
        ((Part(container=there("running")),), "running", True, True),
        ((ENDED, ENDED), "ended, not fetched", False, True),
        ((ENDED, GONE), "unknown", False, True),
        ((FAILED, GONE), "ended, not fetched", False, True),
        ((PRUNED, PRUNED), "unknown", False, True),
        ((PRUNED, Part(folder=folder(stopped=True))), "ended, not fetched", False, True),
        ((PRUNED, Part(folder=folder(collected=True, summary={"state": "unknown"}))), "unknown", False, True),
        ((Part(container=there("created"), folder=folder(started=True), now=160.0),), "starting", False, True),
        ((PLACED, PLACED), "starting", False, True),
        ((MADE, PLACED), "starting", False, True),
        ((PLACED, GONE), "never started", False, True),
        ((GONE, GONE), "never started", False, True),
        ((FETCHED, FETCHED), "succeeded", False, False),
        ((FETCHED, GONE), "ended, not fetched", False, True),
        ((FETCHED, RUNS), "running", True, True),
        ((Part(folder=folder(collected=True)), FETCHED), "succeeded", False, False),
        ((Part(folder=folder(collected=True, summary={})),), "unknown", False, False),
        ((Part(folder=folder(collected=True, summary=[1])),), "unknown", False, False),
        ((Part(folder=folder(collected=True, summary={"state": "unknown"})), FETCHED), "succeeded", False, False),
    ],
)
def test_states(parts: tuple[Part, ...], state: str, runs: bool, is_open: bool) -> None:
    known = job(*parts)
    assert (known.state, known.runs, known.open) == (state, runs, is_open)


def test_what_somebody_has_written_down_and_whether_it_ever_ran() -> None:
    assert job(GONE, FETCHED).summary == FETCHED.folder["summary"]
    assert job(GONE, ENDED).summary is None
    assert [job(part).begun for part in (ENDED, RUNS, MADE, GONE)] == [True, True, False, False]
    signs = [
        {"started": True},
        {"summary": {"state": "failed"}},
        {"stopped": True},
        {"last": {"step": 1}},
        {"last": None},
    ]
    assert [job(Part(folder={**GONE.folder, **sign})).begun for sign in signs] == [True, True, True, True, False]


def test_how_old_it_is_and_how_long_it_lasted() -> None:
    assert job(RUNS, ENDED).age_s == 60.0
    assert job(Part(container=there("running"))).age_s is None
    assert job(ENDED, Part(container=there("exited", 1, 170.0), folder=folder())).lasted_s == 70.0
    assert job(RUNS, ENDED).lasted_s is None, "it runs still"
    assert job(GONE).lasted_s is None, "nobody knows"


def test_the_newest_of_its_figures() -> None:
    first, last = Part(folder=folder(last={"step": 3})), Part(folder=folder(last={"step": 9, "loss": 1}))
    assert job(last, first, GONE).last == {"step": 9, "loss": 1}
    assert job(GONE, Part(folder=folder(last={"step": None}))).last == {"step": None}
    assert job(Part(container=there("running"))).last == {}


class TestChoosing:
    one, two = job(RUNS, name="one"), job(RUNS, name="two")
    old, older = job(FETCHED, name="old"), job(FETCHED, name="older")

    def test_by_name(self) -> None:
        assert choose_job([self.one, self.two, self.old], "old", running=True) is self.old
        with pytest.raises(RingmasterError, match="NAME=no: no node knows such a job; known jobs: one, old") as raised:
            choose_job([self.one, self.old], "no", running=False)
        assert raised.value.exit_code == ExitCode.USAGE
        with pytest.raises(RingmasterError, match="known jobs: none"):
            choose_job([], "no", running=False)

    @pytest.mark.parametrize("running", [True, False])
    def test_the_only_one_that_runs(self, running: bool) -> None:
        assert choose_job([self.one, self.old], "", running=running) is self.one

    @pytest.mark.parametrize("running", [True, False])
    def test_of_several_that_run_none_is_guessed(self, running: bool) -> None:
        with pytest.raises(RingmasterError, match=r"2 jobs are running \(one, two\): choose one with NAME="):
            choose_job([self.one, self.two], "", running=running)

    def test_the_newest_where_none_runs_but_only_to_look_at(self) -> None:
        assert choose_job([self.old, self.older], "", running=False) is self.old
        assert choose_job([self.old, self.older], "", running=True) is None
        assert choose_job([], "", running=False) is None


@pytest.fixture
def nodes(tmp_path: Path) -> dict[str, Any]:
    return {name: Node(tmp_path, name) for name in ("node1", "node2")}


def test_nodes_are_asked_and_what_runs_comes_first_then_the_newest(nodes: dict[str, Any]) -> None:
    one, two = nodes.values()
    one.have("old", collected=True, at=1000)
    one.have("new", at=3000)
    two.have("new", at=2999)
    two.have("runs", at=10)
    two.fake.put("runs")
    two.fake.put("nameless")
    jobs, silent = find_jobs(nodes)
    assert silent == {}
    assert [each.name for each in jobs] == ["runs", "nameless", "new", "old"]
    assert [list(each.parts) for each in jobs] == [["node2"], ["node2"], ["node1", "node2"], ["node1"]]
    runs, nameless = jobs[0].parts["node2"], jobs[1].parts["node2"]
    assert runs.container and runs.container.state == "running" and runs.now > 3000
    assert nameless.container and nameless.folder == {}


def only(remotes: dict[str, Any], name: str = "job") -> FoundJob:
    return choose_job(find_jobs(remotes)[0], name, running=False) or pytest.fail("no such job")


def test_the_plan_is_read_from_whichever_node_has_it(nodes: dict[str, Any]) -> None:
    for node in nodes.values():
        node.have("job")
    (nodes["node1"].jobs / "job/plan.json").write_text('{"nodes": [')
    plan, remotes = plan_of(only(nodes), nodes)
    assert plan == cluster_plan(2, name="job")
    assert remotes == nodes


def test_nodes_that_the_plan_calls_by_other_names_are_known_by_their_address(tmp_path: Path) -> None:
    remotes: dict[str, Any] = {
        name: Node(tmp_path, name, address)
        for name, address in (("b", "10.0.0.2"), ("a", "10.0.0.1"), ("other", "10.0.0.3"))
    }
    remotes["a"].have("job")
    remotes["b"].have("job")
    _, chosen = plan_of(only(remotes), remotes)
    assert chosen == {"node1": remotes["a"], "node2": remotes["b"]}


def test_a_nodes_folder_says_its_name_in_the_plan(tmp_path: Path) -> None:
    """The launcher that started the job had the two names swapped, and reached the machines at other addresses."""
    remotes: dict[str, Any] = {
        name: Node(tmp_path, name, address) for name, address in (("node1", "10.0.0.1"), ("node2", "203.0.113.2"))
    }
    remotes["node1"].have("job", planned="node2")
    remotes["node2"].have("job", planned="node1")
    assert plan_of(only(remotes), remotes)[1] == {"node1": remotes["node2"], "node2": remotes["node1"]}


def test_a_containers_label_says_it_before_all_else(tmp_path: Path) -> None:
    remote: Any = Node(tmp_path, "a", "10.0.0.1")
    remote.have("job", planned="node1")
    container_id = remote.fake.put("job")
    remote.fake.inspected[container_id]["Config"]["Labels"]["ringmaster.node"] = "node2"
    assert plan_of(only({"a": remote}), {"a": remote})[1] == {"node2": remote}


@pytest.mark.parametrize("planned", ["elsewhere", "../node1"])
def test_a_name_that_the_plan_has_not_is_none_of_its_nodes(tmp_path: Path, planned: str) -> None:
    remote: Any = Node(tmp_path, "node1", "10.0.0.1")
    remote.have("job", planned=planned)
    assert plan_of(only({"node1": remote}), {"node1": remote})[1] == {}


def test_a_plan_of_another_job_is_not_this_ones(nodes: dict[str, Any]) -> None:
    nodes["node1"].have("job", of="other")
    with pytest.raises(RingmasterError, match="can't be read on node1"):
        plan_of(only(nodes), nodes)
    nodes["node2"].have("job")
    assert plan_of(only(nodes), nodes)[0].name == "job"


def test_names_from_nodes_that_are_no_names_are_no_jobs(nodes: dict[str, Any]) -> None:
    for name in ("-x", "a b", "x" * 101, "a\nb"):
        nodes["node1"].have(name, of="job")
    nodes["node2"].fake.put("../home")
    assert find_jobs(nodes) == ([], {})


def test_a_node_that_knows_nothing_of_the_job_is_none_of_its_nodes(nodes: dict[str, Any]) -> None:
    nodes["node1"].have("job")
    assert plan_of(only(nodes), nodes)[1] == {"node1": nodes["node1"]}


@pytest.mark.parametrize("content", [None, "", "[]", "{}", json.dumps({"nodes": [], "later": 1})])
def test_without_a_plan_it_can_only_be_stopped(nodes: dict[str, Any], content: str | None) -> None:
    nodes["node1"].have("job")
    nodes["node1"].fake.put("job")
    plan = nodes["node1"].jobs / "job/plan.json"
    plan.unlink()
    if content is not None:
        plan.write_text(content)
    with pytest.raises(RingmasterError, match=r"can't be read on node1; make stop NAME=job removes it") as raised:
        plan_of(only(nodes), nodes)
    assert raised.value.exit_code == ExitCode.CLUSTER


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            RingmasterError("node2: its Docker engine doesn't answer", exit_code=ExitCode.NOT_STARTED),
            "its Docker engine",
        ),
        (DockerException("Error while fetching server API version"), "Error while fetching"),
        (EOFError("cut"), "cut"),
        (None, "the connection is lost"),
    ],
)
def test_one_node_that_can_not_tell_is_named_and_the_others_tell(
    nodes: dict[str, Any], error: Exception | None, reason: str
) -> None:
    for node in nodes.values():
        node.have("job")
    nodes["node2"].engine_fails, nodes["node2"].alive = error, error is not None
    jobs, silent = find_jobs(nodes)
    assert [list(each.parts) for each in jobs] == [["node1"]]
    assert list(silent) == ["node2"] and silent["node2"].startswith(reason)
