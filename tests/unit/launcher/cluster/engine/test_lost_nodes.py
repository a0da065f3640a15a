"""When a node that we don't reach is lost; the engines are fakes."""

from collections.abc import Sequence
from typing import Any

import pytest

from launcher.cluster.engine import node as docker_node
from launcher.cluster.engine import runtime as docker_runtime
from launcher.cluster.engine.runtime import DockerRuntime
from launcher.cluster.peer_view import Verdict
from tests.support.cluster.cluster_runtime import Cluster
from tests.support.cluster.live_engine import until
from tests.support.plans import cluster_plan

WELL = {"ports": {"22": "greets", "1": "refuses"}, "heard_s": None, "stuck": False}
GONE = {"ports": {"22": "nothing", "1": "nothing"}, "heard_s": None, "stuck": False}
RUNS = {"ports": {"22": "refuses", "1": "nothing"}, "heard_s": 0.0, "stuck": False}


class TestLost:
    """A node that we can't reach is lost once what had answered another node does so no more."""

    @pytest.fixture(autouse=True)
    def quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(docker_runtime, "_PEERS_S", 0.0)
        monkeypatch.setattr(docker_runtime, "_WELL_S", 0.0)
        monkeypatch.setattr(docker_runtime, "_PAUSE_S", 0.01)
        monkeypatch.setattr(docker_node, "_HEARTBEAT_S", 0.02)
        monkeypatch.setattr(docker_node, "open_all", lambda hosts, pins: ({}, {}))

    def away(self, cluster: Cluster, *, well: Any, now: Any) -> tuple[DockerRuntime, Any, list[Sequence[str]]]:
        """Cut node2 off; return the commands that node1 runs. `well` and `now`: what each sees of the other."""
        commands: list[Sequence[str]] = []
        for remote in cluster.remotes.values():
            remote.seen = well
        runtime = cluster.runtime()
        nodes = cluster.start(runtime)
        until(lambda: runtime.watch() == [] and runtime._well)
        until(lambda: not runtime._asking)

        def answers(words: Sequence[str]) -> int:
            commands.append(words)
            return 0

        cluster.remotes["node1"].answers, cluster.remotes["node1"].seen = answers, now
        cluster.remotes["node2"].cut = True
        until(lambda: runtime.watch() == ["node2"])
        until(lambda: runtime.watch() is not None and commands)
        return runtime, nodes, commands

    def test_no_peer_reaches_it(self, cluster: Cluster) -> None:
        runtime, nodes, commands = self.away(cluster, well=WELL, now=GONE)
        until(lambda: nodes[1].lost)
        assert nodes[1].lost.endswith("and node1 can't reach it either")
        assert nodes[0].lost is None
        assert list(commands[0][-3:]) == ["10.0.0.2", "22", "1"]
        assert runtime.watch() == ["node2"], "it does not answer again by being lost"

    @pytest.mark.parametrize(
        ("well", "now", "said"),
        [
            (WELL, WELL, "node2: node1 reaches it: only the line from here is broken"),
            (WELL, RUNS, "node2: node1 reaches it: only the line from here is broken"),
            (GONE, GONE, "node2: node1 can't tell whether it still runs"),
            (WELL, "no python3", "node2: node1 can't tell whether it still runs"),
        ],
    )
    def test_a_healthy_node_is_not_lost_by_a_hiccup_of_our_own_line(
        self, cluster: Cluster, well: Any, now: Any, said: str
    ) -> None:
        runtime, nodes, commands = self.away(cluster, well=well, now=now)
        until(lambda: runtime.watch() is not None and len(commands) > 2)
        assert nodes[1].lost is None
        assert runtime.watch() == ["node2"]
        assert [*runtime.news(), *runtime.news()] == [said], "once"

    def test_if_none_is_reached_it_is_our_own_network(self, cluster: Cluster) -> None:
        runtime = cluster.runtime()
        nodes = cluster.start(runtime)
        for remote in cluster.remotes.values():
            remote.cut = True
        until(lambda: runtime.watch() == ["node1", "node2"])
        assert [node.lost for node in nodes] == [None, None]

    def test_an_error_while_asking_is_told_and_another_time_it_may_go(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failed: list[bool] = []
        judge = docker_runtime.judge

        def fails_once(*words: Any, **more: Any) -> Any:
            if not failed:
                failed.append(True)
                raise MemoryError("no memory")
            return judge(*words, **more)

        monkeypatch.setattr(docker_runtime, "judge", fails_once)
        runtime, nodes, _ = self.away(cluster, well=WELL, now=GONE)
        until(lambda: runtime.watch() and nodes[1].lost)
        assert runtime.news() == ["the nodes can't be asked about each other (no memory)"]


class TestAlone:
    """A node that no other can be asked about is given up, after a while that the user is told of."""

    @pytest.fixture(autouse=True)
    def quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(docker_runtime, "_PEERS_S", 0.0)
        monkeypatch.setattr(docker_node, "_HEARTBEAT_S", 0.02)
        monkeypatch.setattr(docker_node, "open_all", lambda hosts, pins: ({}, {}))

    @pytest.mark.parametrize("nodes_of_the_job", [1, 2])
    def test_it_is_counted_down(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, nodes_of_the_job: int) -> None:
        cluster.plan = cluster_plan(nodes_of_the_job)
        runtime = cluster.runtime()
        nodes = cluster.start(runtime)
        if nodes_of_the_job == 2:  # the other one has ended
            cluster.engines[1].end(0)
            until(lambda: nodes[1].poll() == 0)
        cluster.remotes["node1"].cut = True
        until(lambda: nodes[0].unreachable_since is not None)
        passed = [0.0]
        monkeypatch.setattr(docker_runtime, "_silent_s", lambda node: passed[0])
        said = []
        for passed[0] in (10, 20, 69, 71, 140, 299):
            runtime.watch()
            said.append([line for line in runtime.news() if "it counts as lost" in line])
        assert said == [
            ["node1: no answer for 10 s; it counts as lost in 290 s"],
            [],
            [],
            ["node1: no answer for 71 s; it counts as lost in 229 s"],
            ["node1: no answer for 140 s; it counts as lost in 160 s"],
            ["node1: no answer for 299 s; it counts as lost in 1 s"],
        ]
        assert nodes[0].lost is None
        passed[0] = 300
        runtime.watch()
        assert nodes[0].lost == (
            "no answer for 300 s, and no other node of the job can tell: it may still run "
            "(make logs NAME=job follows it again)"
        )


def test_who_is_seen_to_run_is_not_counted_down(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other node's container has ended, but its machine can be asked."""
    for name, value in (("_PEERS_S", 0.0), ("_WELL_S", 0.0), ("_PAUSE_S", 0.01)):
        monkeypatch.setattr(docker_runtime, name, value)
    monkeypatch.setattr(docker_node, "_HEARTBEAT_S", 0.02)
    monkeypatch.setattr(docker_node, "open_all", lambda hosts, pins: ({}, {}))
    for remote in cluster.remotes.values():
        remote.seen = WELL
    runtime = cluster.runtime()
    nodes = cluster.start(runtime)
    cluster.engines[1].end(0)
    until(lambda: nodes[1].poll() == 0)
    cluster.remotes["node1"].cut = True
    until(lambda: nodes[0].unreachable_since is not None)
    until(lambda: runtime.watch() and runtime._verdicts.get("node1") is Verdict.RUNS)
    monkeypatch.setattr(docker_runtime, "_ALONE_S", 0.0)
    assert runtime.watch() == ["node1"]
    until(lambda: "node1: node2 reaches it: only the line from here is broken" in runtime.news())
    assert nodes[0].lost is None
