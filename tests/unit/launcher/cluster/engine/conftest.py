"""Nodes that a test follows, by a clock that is quicker than in earnest."""

from collections.abc import Iterator

import pytest

from launcher.cluster.engine import node as docker_node
from launcher.cluster.engine.node import DockerNode
from tests.support.cluster.cluster_runtime import Cluster


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_node, "_HEARTBEAT_S", 0.02)
    monkeypatch.setattr(docker_node, "_AGAIN_S", 0.02)
    monkeypatch.setattr(docker_node, "_LONGEST_AGAIN_S", 0.02)
    monkeypatch.setattr(docker_node, "_PAUSE_S", 0.02)
    monkeypatch.setattr(docker_node, "_LONGEST_PAUSE_S", 0.02)


@pytest.fixture
def nodes(quick: None) -> Iterator[list[DockerNode]]:
    """The nodes that a test follows; released at its end, so that no thread outlives it."""
    followed: list[DockerNode] = []
    yield followed
    for node in followed:
        node.release()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    for runtime in cluster.runtimes:
        runtime.release()  # no thread outlives its test
