"""A node in a container that is followed, with the fakes around it."""

from pathlib import Path

from launcher.cluster.engine.node import DockerNode
from launcher.job.plan import NodePlan
from tests.support.cluster.live_engine import FakeRemote, LiveEngine
from tests.support.plans import cluster_plan


class Followed:
    """A node, its fakes, and what was read from it."""

    def __init__(
        self,
        nodes: list[DockerNode],
        *lines: str,
        plan: NodePlan | None = None,
        name: str = "node1",
        engine: LiveEngine | None = None,
    ) -> None:
        self.engine = engine or LiveEngine()
        self.remote = FakeRemote(self.engine, name)
        self.container = self.engine.run(*lines)
        self.node = DockerNode(
            plan or cluster_plan(1).nodes[0],
            self.remote,  # type: ignore[arg-type]
            self.container,
            29500,
            Path("/pins"),
        )
        nodes.append(self.node)

    def rest(self) -> bytes:
        """Return everything that it still prints."""
        output = b""
        while data := self.node.read():
            output += data
        return output

    def calls(self, verb: str) -> list[tuple[str, ...]]:
        return [words for words in self.engine.calls if words[0] == verb]
