"""`make status`, `logs` and `stop` on nodes that are folders here; the engines are fakes."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from launcher.base.node_table import Row
from launcher.cluster import teardown
from launcher.cluster.sockets import SOCKETS
from launcher.commands import jobs
from launcher.commands.inventory import Inventory
from launcher.follow.outcome import Outcome
from launcher.follow.summary import finish
from launcher.inventory.hosts import Host
from launcher.job.folder import JobFolder
from launcher.ssh import pool
from launcher.ssh.connection import Finished
from tests.support.cluster.cluster_job import SUCCEEDED, Node, Nodes


class JobNode(Node):
    """A node that reports which processes and sockets of a job are left."""

    pids = ""
    sockets = ""

    def run(self, words: Any, **how: Any) -> Finished:
        if tuple(words) == SOCKETS:
            return Finished(code=0, out=self.sockets.encode(), err=b"")
        if words[0] == "date":
            return Finished(code=0, out=f"{time.time():.9f}\n".encode(), err=b"")
        if words[3] == teardown._PROCESSES:
            return Finished(code=0, out=self.pids.encode(), err=b"")
        return super().run(words, **how)


class Supervision:
    """A stand-in for `Follower` that ends at once, with the outcome in `ends`."""

    def __init__(self) -> None:
        self.ends = SUCCEEDED
        self.asked: list[tuple[bool, tuple[int, ...]]] = []
        """(only_follows, signals) of each call."""

    def __call__(self, *_: Any, only_follows: bool = False, received: tuple[int, ...] = ()) -> "Supervision":
        self.asked.append((only_follows, tuple(received)))
        return self

    def run(self) -> Outcome:
        return self.ends


class Cluster(Nodes):
    """Two nodes that have a job called `job`, seen from a machine that doesn't know it yet."""

    kind = JobNode

    def __init__(self, top: Path) -> None:
        super().__init__(top)
        self.missing: dict[str, Row] = {}
        self.supervision = Supervision()

    @contextmanager
    def reached(self, _: Any) -> Iterator[Any]:
        yield pool.Reached(remotes=dict(self.remotes), missing=dict(self.missing), pins=Path("/p"))

    def age(self, seconds: float) -> None:
        for path in self.dirs.values():
            os.utime(path / "job/plan.json", (time.time() - seconds,) * 2)

    def without_containers(self) -> None:
        for remote in self.remotes.values():
            remote.fake.inspected.clear()

    def running(self) -> None:
        for remote in self.remotes.values():
            for each in remote.fake.inspected.values():
                each["State"]["Status"] = "running"

    def rename(self, address: str) -> None:
        """Give the nodes other names and addresses in our inventory, and remove the plan's names from the nodes."""
        self.remotes = {f"gpu{number}": each for number, each in enumerate(self.remotes.values())}
        for name, remote in self.remotes.items():
            remote.name, remote.host = name, Host(name=name, address=address, settings=remote.host.settings)
            (remote.jobs / "job/node").unlink()
            for each in remote.fake.inspected.values():
                each["Config"]["Labels"].pop("ringmaster.node", None)

    def close(self, name: str, outcome: Outcome) -> None:
        """Have another machine fetch and close the job on one node."""
        there = JobFolder(path=self.dirs[name] / "job")
        finish(there, self.plan, outcome, 0.0, print, ended_at=60.0)
        (there.path / "collected").touch()
        self.remotes[name].fake.inspected.clear()

    def ended(self, name: str, code: int) -> None:
        """Let the job's container on a node have ended with this code; its log is gone."""
        engine = self.remotes[name].fake
        engine.put("job", "exited", code)
        engine.logs = lambda *_, **__: iter(())

    def summary(self) -> dict[str, Any]:
        made: dict[str, Any] = json.loads(self.folder.summary.read_text())
        return made


def asked(top: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Return a cluster that the three commands ask, with a stand-in for the follower."""
    made = Cluster(top)
    monkeypatch.setattr(
        jobs, "_inventory", lambda _: Inventory(path=top / "hosts.yml", hosts=(Host(name="a", address="a"),))
    )
    monkeypatch.setattr(jobs, "_nodes", made.reached)
    monkeypatch.setattr(jobs, "RUNS", top / "runs")
    monkeypatch.setattr(jobs, "ROOT", top)
    monkeypatch.setattr(jobs, "Follower", made.supervision)
    return made


def words(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())
