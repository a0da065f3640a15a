"""Containers on all nodes or on none; the engines are fakes."""

from collections.abc import Callable

import pytest
from docker.errors import ImageNotFound
from requests import ReadTimeout

from launcher.base.errors import ExitCode, RingmasterError
from launcher.cluster.engine import runtime as docker_runtime
from launcher.follow.runtime import NotStartedError
from launcher.ssh.connection import LostError
from tests.support.cluster.cluster_runtime import Cluster
from tests.support.cluster.engine import refusal
from tests.support.cluster.live_engine import FakeRemote, until
from tests.support.plans import cluster_plan

BOTH = ("node1", "node2")


def test_every_container_is_made_before_the_first_one_starts(cluster: Cluster) -> None:
    runtime = cluster.runtime()
    observed: list[list[list[str]]] = []
    for engine in cluster.engines:
        start = engine.start

        def noted(container: str, start: Callable[[str], None] = start) -> None:
            observed.append(cluster.jobs)
            start(container)

        engine.start = noted  # type: ignore[method-assign]
    nodes = cluster.start(runtime)
    assert observed == [[["job"], ["job"]]] * 2
    assert [node.plan.name for node in nodes] == ["node1", "node2"]
    assert [each["State"]["Status"] for engine in cluster.engines for each in engine.inspected.values()] == [
        "running",
        "running",
    ]


@pytest.mark.parametrize(
    ("verb", "error", "reason"),
    [
        (
            "create",
            ImageNotFound("No such image: sha256:1"),
            "its engine refuses the container: No such image: sha256:1",
        ),
        ("create", refusal(409, "the name\nis taken"), "its engine refuses the container: the name is taken"),
        ("start", refusal(500, "no device driver"), "its engine refuses the container: no device driver"),
    ],
)
def test_if_one_refuses_none_is_left(cluster: Cluster, verb: str, error: Exception, reason: str) -> None:
    cluster.engines[1].refuses[verb] = error
    with pytest.raises(NotStartedError, match="node2") as raised:
        cluster.start(cluster.runtime())
    assert (raised.value.node, raised.value.exit_code) == ("node2", ExitCode.NOT_STARTED)
    assert str(raised.value) == f"node2: {reason}"
    assert cluster.jobs == [[], []]


def test_a_connection_that_breaks_leaves_none_either(cluster: Cluster) -> None:
    cluster.engines[1].refuses["start"] = LostError("node2", "reset")
    with pytest.raises(NotStartedError, match="node2: its engine refuses the container: node2: the connection is lost"):
        cluster.start(cluster.runtime())
    assert cluster.jobs == [[], []]


@pytest.mark.parametrize("verb", ["list", "create"])
@pytest.mark.parametrize(
    "error", [LostError("node2", "reset"), ConnectionResetError("reset"), ReadTimeout("no answer"), EOFError()]
)
def test_whatever_it_breaks_as_the_job_was_not_started(cluster: Cluster, verb: str, error: Exception) -> None:
    """Also in between: the container is created, and then nobody can tell whether another is in its way."""
    cluster.engines[1].refuses[verb] = error
    with pytest.raises(NotStartedError, match="node2") as raised:
        cluster.start(cluster.runtime())
    assert raised.value.exit_code == ExitCode.NOT_STARTED
    assert cluster.jobs[0] == []
    assert raised.value.node == "node2" or verb == "list", "where the failure is shown"


def test_where_something_may_still_run_is_told(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its container runs, but the connection breaks before we learn that."""
    broken = cluster.remotes["node2"]
    start = broken.fake.start

    def breaks(container: str) -> None:
        start(container)
        broken.cut, broken.alive = True, False
        raise ConnectionResetError("cut")

    broken.fake.start = breaks  # type: ignore[method-assign]
    monkeypatch.setattr(docker_runtime, "revived", lambda remotes, pins: {"node1": remotes["node1"]})
    with pytest.raises(NotStartedError) as raised:
        cluster.start(cluster.runtime())
    assert str(raised.value).splitlines()[-1] == "something may run on node2: make stop NAME=job"
    assert cluster.running == [[], ["job"]]


def test_a_line_that_breaks_while_attaching_says_nothing_of_the_job(cluster: Cluster) -> None:
    cluster.start(cluster.runtime())
    cluster.remotes["node2"].cut = True
    with pytest.raises(RingmasterError, match="node2") as raised:
        cluster.start(cluster.runtime(attach=True))
    assert not isinstance(raised.value, NotStartedError)
    assert cluster.running == [["job"], ["job"]]


def test_another_jobs_node_is_left_alone_and_so_is_the_other_one(cluster: Cluster) -> None:
    cluster.engines[1].put("first")
    cluster.engines[1].now = 1
    with pytest.raises(
        NotStartedError, match=r"node2: job first has it \(make status .*make stop NAME=first"
    ) as raised:
        cluster.start(cluster.runtime())
    assert raised.value.exit_code == ExitCode.NOT_STARTED
    assert cluster.jobs == [[], ["first"]]


def test_who_is_refused_by_the_first_node_makes_nothing_on_the_others(cluster: Cluster) -> None:
    """So one of two launchers gives way there, before the other might have to give way on another node."""
    cluster.engines[0].put("first")
    for engine in cluster.engines:
        engine.now = 1
    with pytest.raises(NotStartedError, match="node1: job first has it"):
        cluster.start(cluster.runtime())
    assert [words for words in cluster.engines[1].calls if words[0] == "create"] == []
    assert cluster.jobs == [["first"], []]


def test_two_jobs_share_a_node_with_gpus_of_their_own(cluster: Cluster) -> None:
    cluster.plan = cluster_plan(2, ("1",))
    cluster.engines[0].put("first", requests=[{"Count": 0, "DeviceIDs": ["0"]}])
    cluster.engines[0].now = 1
    runtime = cluster.runtime()
    cluster.start(runtime)
    assert cluster.jobs == [["first", "job"], ["job"]]
    runtime.sweep()
    assert cluster.running == [["first"], []]
    assert runtime.remove(BOTH) == []
    assert cluster.jobs == [["first"], []]


def test_all_that_stands_against_it_is_said(cluster: Cluster) -> None:
    for engine in cluster.engines:
        engine.refuses["start"] = refusal(500, f"{engine.name} is full")
    with pytest.raises(NotStartedError) as raised:
        cluster.start(cluster.runtime())
    assert str(raised.value).splitlines() == [
        "node1: its engine refuses the container: node1 is full",
        "node2: its engine refuses the container: node2 is full",
    ]


def test_whoever_attaches_makes_and_starts_nothing(cluster: Cluster) -> None:
    there = [engine.put("job") for engine in cluster.engines]
    cluster.engines[0].put("other")
    for engine in cluster.engines:
        engine.refuses = {verb: AssertionError(verb) for verb in ("create", "start")}
    nodes = cluster.start(cluster.runtime(attach=True))
    nodes[1].kill()
    until(lambda: ("kill", there[1], "9") in cluster.engines[1].calls)
    assert cluster.jobs == [["job", "other"], ["job"]]


@pytest.mark.parametrize("reached", [["node1", "node2"], ["node1"]])
def test_whoever_attaches_follows_what_is_left(cluster: Cluster, reached: list[str]) -> None:
    cluster.engines[0].put("job")
    runtime = cluster.runtime(attach=True, remotes={name: cluster.remotes[name] for name in reached})
    assert [node.plan.name for node in cluster.start(runtime)] == ["node1"]
    runtime.sweep()
    assert cluster.running == [[], []]
    assert cluster.jobs == [["job"], []], "what has ended stays to be looked at"


def test_what_was_made_and_never_started_is_not_followed_and_is_removed(cluster: Cluster) -> None:
    cluster.engines[0].put("job")
    cluster.engines[1].put("job", "created")
    runtime = cluster.runtime(attach=True)
    assert [node.plan.name for node in cluster.start(runtime)] == ["node1"]
    runtime.sweep()
    assert runtime.remove(BOTH) == []
    assert cluster.jobs == [[], []]


def test_the_sweep_takes_only_what_is_the_jobs_own(cluster: Cluster) -> None:
    runtime = cluster.runtime()
    cluster.start(runtime)
    cluster.engines[0].put("other")
    cluster.engines[1].put("job")
    assert runtime.sweep() == 0
    assert cluster.running == [["other"], []]
    assert runtime.remove(BOTH) == []
    assert cluster.jobs == [["other"], []]


def test_what_is_frozen_is_ended_too(cluster: Cluster) -> None:
    runtime = cluster.runtime()
    cluster.start(runtime)
    (one,) = cluster.engines[1].inspected.values()
    one["State"]["Status"] = "paused"
    runtime.sweep()
    assert one["State"]["Status"] == "exited"


def test_a_container_that_somebody_removed_is_told(cluster: Cluster) -> None:
    runtime = cluster.runtime()
    nodes = cluster.start(runtime)
    assert runtime.unseen() == {}
    cluster.engines[1].inspected.clear()
    until(lambda: nodes[1].poll() is not None)
    assert runtime.unseen() == {"node2": "container gone"}


@pytest.mark.parametrize("alike", [True, False])
def test_where_nothing_could_be_removed_is_told_by_the_plans_name(cluster: Cluster, alike: bool) -> None:
    names = {"node1": "node1", "node2": "node2" if alike else "gpu-b"}
    cluster.remotes["node2"].name = names["node2"]
    cluster.engines[0].put("job")
    cluster.engines[1].put("job")
    runtime = cluster.runtime(attach=True)
    cluster.engines[1].refuses["remove"] = refusal(500, "device busy")
    assert runtime.remove(BOTH) == ["node2"]
    cluster.remotes["node1"].cut = True
    assert runtime.remove(BOTH) == ["node1", "node2"]
    assert cluster.jobs == [[], ["job"]]


def test_the_sweep_goes_by_the_connection_as_it_is_now(cluster: Cluster) -> None:
    runtime = cluster.runtime()
    nodes = cluster.start(runtime)
    new = FakeRemote(cluster.engines[0])
    new.alive = True  # type: ignore[attr-defined]
    cluster.remotes["node1"].cut = True
    nodes[0].remote = new
    assert runtime.remotes()["node1"] is new
    runtime.sweep()
    assert cluster.running == [[], []]
    assert runtime.remove(BOTH) == []
    assert cluster.jobs == [[], []]


def test_a_node_out_of_reach_does_not_keep_the_others_from_being_swept(cluster: Cluster) -> None:
    runtime = cluster.runtime()
    cluster.start(runtime)
    cluster.remotes["node1"].cut = True
    runtime.sweep()
    assert cluster.running == [["job"], []]
