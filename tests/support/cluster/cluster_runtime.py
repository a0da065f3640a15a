"""Two nodes with engines that are fakes, and runtimes of a job on them."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.cluster.engine.runtime import DockerRuntime
from launcher.cluster.sockets import SOCKETS
from launcher.job.plan import Plan
from launcher.ssh.connection import Finished
from tests.support.cluster.live_engine import FakeRemote, LiveEngine
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
        self.seen: Any = None
        """What it sees of another node."""

    def run(self, words: Sequence[str], *, limit_s: float) -> Finished:
        if tuple(words) == SOCKETS or words[0] == "date":
            return super().run(words, limit_s=limit_s)
        return Finished(code=self.answers(words), out=json.dumps(self.seen).encode(), err=b"")


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
