"""Containers on all nodes or on none; the engines are fakes."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from docker.errors import ImageNotFound
from requests import ReadTimeout

from launcher.base.errors import ExitCode, RingmasterError
from launcher.cluster.engine import node as docker_node
from launcher.cluster.engine import runtime as docker_runtime
from launcher.cluster.engine.runtime import DockerRuntime
from launcher.cluster.sockets import SOCKETS
from launcher.follow.runtime import NotStartedError
from launcher.job.plan import Plan
from launcher.ssh.connection import Finished, LostError
from tests.support.engine import refusal
from tests.support.live_engine import FakeRemote, LiveEngine, until
from tests.support.plans import cluster_plan

PINS = Path("/pins")


class Reached(FakeRemote):
    """A connection that also runs programs."""

    alive = True

    def __init__(self, name: str) -> None:
        engine = LiveEngine(name)
        engine.lines, engine.connected = [], True
        super().__init__(engine, name)
        self.fake = engine
        self.answers: Callable[[Sequence[str]], int] = lambda words: 0

    def run(self, words: Sequence[str], *, limit_s: float) -> Finished:
        if tuple(words) == SOCKETS:
            return super().run(words, limit_s=limit_s)
        return Finished(code=self.answers(words), out=b"", err=b"")


class Cluster:
    """Two nodes, and a job for them."""

    def __init__(self) -> None:
        self.plan: Plan = cluster_plan(2)
        self.remotes = {name: Reached(name) for name in ("node1", "node2")}
        self.runtimes: list[DockerRuntime] = []

    @property
    def engines(self) -> list[LiveEngine]:
        return [remote.fake for remote in self.remotes.values()]

    @property
    def jobs(self) -> list[list[str]]:
        """The jobs that have containers, node by node."""
        return [engine.containers_of for engine in self.engines]

    @property
    def running(self) -> list[list[str]]:
        """The jobs whose containers run, node by node."""
        return [
            [
                each["Config"]["Labels"]["ringmaster.job"]
                for each in engine.inspected.values()
                if each["State"]["Status"] == "running"
            ]
            for engine in self.engines
        ]

    def runtime(self, *, attach: bool = False, remotes: Mapping[str, Any] | None = None) -> DockerRuntime:
        self.runtimes.append(DockerRuntime(self.plan, remotes or self.remotes, PINS, attach=attach))  # type: ignore[arg-type]
        return self.runtimes[-1]

    def start(self, runtime: DockerRuntime) -> Any:
        return runtime.start(self.plan.nodes, self.plan.port)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    for runtime in cluster.runtimes:
        runtime.release()  # no thread outlives its test


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
    assert runtime.remove() == []
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
    assert runtime.remove() == []
    assert cluster.jobs == [[], []]


def test_the_sweep_takes_only_what_is_the_jobs_own(cluster: Cluster) -> None:
    runtime = cluster.runtime()
    cluster.start(runtime)
    cluster.engines[0].put("other")
    cluster.engines[1].put("job")
    assert runtime.sweep() == 0
    assert cluster.running == [["other"], []]
    assert runtime.remove() == []
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
    assert not runtime.gone
    cluster.engines[1].inspected.clear()
    until(lambda: nodes[1].poll() is not None)
    assert runtime.gone


@pytest.mark.parametrize("alike", [True, False])
def test_where_nothing_could_be_removed_is_told_by_the_plans_name(cluster: Cluster, alike: bool) -> None:
    names = {"node1": "node1", "node2": "node2" if alike else "gpu-b"}
    cluster.remotes["node2"].name = names["node2"]
    cluster.engines[0].put("job")
    cluster.engines[1].put("job")
    runtime = cluster.runtime(attach=True)
    cluster.engines[1].refuses["remove"] = refusal(500, "device busy")
    assert runtime.remove() == ["node2"]
    cluster.remotes["node1"].cut = True
    assert runtime.remove() == ["node1", "node2"]
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
    assert runtime.remove() == []
    assert cluster.jobs == [[], []]


def test_a_node_out_of_reach_does_not_keep_the_others_from_being_swept(cluster: Cluster) -> None:
    runtime = cluster.runtime()
    cluster.start(runtime)
    cluster.remotes["node1"].cut = True
    runtime.sweep()
    assert cluster.running == [["job"], []]


class TestLost:
    """A node that we can't reach is lost once another node can't reach it either."""

    @pytest.fixture(autouse=True)
    def quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(docker_runtime, "_PEERS_S", 0.0)
        monkeypatch.setattr(docker_node, "_HEARTBEAT_S", 0.02)
        monkeypatch.setattr(docker_node, "open_all", lambda hosts, pins: ({}, {}))

    def away(self, cluster: Cluster, answer: int) -> tuple[DockerRuntime, Any, list[Sequence[str]]]:
        """Cut node2 off; return the commands that node1 runs."""
        commands: list[Sequence[str]] = []
        heard = threading.Event()

        def answers(words: Sequence[str]) -> int:
            commands.append(words)
            heard.set()
            return answer

        cluster.remotes["node1"].answers = answers
        runtime = cluster.runtime()
        nodes = cluster.start(runtime)
        cluster.remotes["node2"].cut = True
        until(lambda: runtime.watch() == ["node2"])
        until(lambda: runtime.watch() is not None and heard.is_set())
        return runtime, nodes, commands

    def test_no_peer_reaches_it(self, cluster: Cluster) -> None:
        runtime, nodes, commands = self.away(cluster, 1)
        until(lambda: nodes[1].lost)
        assert nodes[1].lost.endswith("and node1 can't reach it either")
        assert nodes[0].lost is None
        assert list(commands[0][-2:]) == ["10.0.0.2", "22"]
        assert runtime.watch() == ["node2"], "it does not answer again by being lost"

    @pytest.mark.parametrize("answer", [0, 127])
    def test_only_our_own_link_is_broken(self, cluster: Cluster, answer: int) -> None:
        runtime, nodes, _ = self.away(cluster, answer)
        until(lambda: not runtime._asking)  # the answer has arrived
        assert nodes[1].lost is None
        assert runtime.watch() == ["node2"]

    def test_if_none_is_reached_it_is_our_own_network(self, cluster: Cluster) -> None:
        runtime = cluster.runtime()
        nodes = cluster.start(runtime)
        for remote in cluster.remotes.values():
            remote.cut = True
        until(lambda: runtime.watch() == ["node1", "node2"])
        assert [node.lost for node in nodes] == [None, None]
