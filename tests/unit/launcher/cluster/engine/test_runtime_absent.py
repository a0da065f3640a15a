"""Nodes whose containers can't tell how a job ended, and the sign of a start; the engines are fakes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.cluster.engine.runtime import DockerRuntime
from tests.support.cluster.live_engine import FakeRemote, LiveEngine, until
from tests.support.plans import cluster_plan


class Nodes:
    """Four nodes of a job; the last is out of reach."""

    def __init__(self) -> None:
        self.plan = cluster_plan(4)
        self.engines = {name: LiveEngine(name) for name in ("node1", "node2", "node3")}
        self.remotes: dict[str, Any] = {name: FakeRemote(engine, name) for name, engine in self.engines.items()}
        for name, engine in self.engines.items():
            engine.lines, engine.connected = [], True
            self.remotes[name].alive = True
        self.runtimes: list[DockerRuntime] = []

    def runtime(self, **how: Any) -> DockerRuntime:
        self.runtimes.append(DockerRuntime(self.plan, self.remotes, Path("/pins"), **how))
        return self.runtimes[-1]

    def jobs(self) -> list[list[str]]:
        return [engine.containers_of for engine in self.engines.values()]


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    made = Nodes()
    yield made
    for runtime in made.runtimes:
        runtime.release()  # no thread outlives its test


def test_whoever_attaches_knows_of_whom_nothing_can_be_told(nodes: Nodes) -> None:
    nodes.engines["node1"].put("other")
    nodes.engines["node2"].put("job", "created")
    nodes.engines["node3"].put("job", "exited", code=1)
    runtime = nodes.runtime(attach=True)
    assert [node.plan.name for node in runtime.start(nodes.plan.nodes, nodes.plan.port)] == ["node3"]
    assert runtime.unseen() == {
        "node1": "container gone",
        "node2": "container never started",
        "node4": "out of reach",
    }


def test_only_where_it_is_asked_for_containers_are_removed(nodes: Nodes) -> None:
    for engine in nodes.engines.values():
        engine.put("job", "exited")
    assert nodes.runtime(attach=True).remove(["node2", "node3"]) == []
    assert nodes.jobs() == [["job"], [], []]


def test_a_start_is_told_of_before_it_is_made(nodes: Nodes) -> None:
    def told(remote: Any) -> None:
        (container,) = nodes.engines[remote.name].inspected.values()
        states[remote.name] = container["State"]["Status"]

    states: dict[str, str] = {}
    nodes.plan = cluster_plan(3)
    nodes.runtime(before_start=told).start(nodes.plan.nodes, nodes.plan.port)
    assert states == dict.fromkeys(nodes.engines, "created")


def test_an_end_that_was_seen_counts_though_its_container_is_removed_while_its_log_is_read(nodes: Nodes) -> None:
    engine = nodes.engines["node1"]
    engine.put("job", "exited", code=3)
    read = engine.logs

    def pruned(*words: Any, **how: Any) -> Any:
        engine.inspected.clear()
        return read(*words, **how)

    engine.logs = pruned  # type: ignore[method-assign]
    runtime = nodes.runtime(attach=True)
    (node,) = runtime.start(nodes.plan.nodes[:1], nodes.plan.port)
    until(lambda: node.poll() is not None)
    assert (node.poll(), runtime.unseen()) == (3, {})
