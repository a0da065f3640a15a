"""A site whose nodes are folders here, and whose probes' answers are invented."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from docker.errors import ImageNotFound

from launcher.base.paths import ROOT
from launcher.cluster.site import ClusterSite
from launcher.image.content import trainer_hash
from launcher.job.folder import JobFolder
from launcher.job.program import Program
from launcher.job.request import Request
from launcher.on_node import probe
from launcher.ssh.connection import Finished
from tests.support.cluster.engine import FakeEngine
from tests.support.cluster.local_remote import LocalRemote
from tests.support.probe_answers import ANSWER, interface

BUNDLED = Request(program=Program(arguments=("--epochs", "1"), root=ROOT))
ID = "sha256:" + "1" * 64
REFERENCE = "registry.example/train@sha256:" + "2" * 64

IMAGE: dict[str, Any] = {
    "Id": ID,
    "Architecture": "amd64",
    "Config": {
        "Labels": {
            "ringmaster.trainer": trainer_hash(),
            "ringmaster.cuda": "13.2",
            "ringmaster.packages": json.dumps({"torch": "2.9", "torchvision": "0.24"}),
        }
    },
}

_SOURCE = Path(probe.__file__).read_text()


class Node(LocalRemote):
    """A node that is this machine; its probe's answer is invented."""

    def __init__(self, job_dir: Path, name: str, number: int) -> None:
        super().__init__(job_dir, name)
        self.data = job_dir.parent / "data"
        self.data.mkdir()
        self.host = replace(self.host, settings={**self.host.settings, "data_dir": str(self.data)})
        self.before: dict[str, Callable[[], None]] = {}
        self.after: dict[str, Callable[[], None]] = {}
        """What happens before and after it runs a verb."""
        self.answer: dict[str, Any] = {
            **ANSWER,
            "gpus": [],
            "job_dir": {**ANSWER["job_dir"], "path": str(job_dir)},
            "data_dir": {**ANSWER["data_dir"], "path": str(self.data)},
            "image": {"reference": REFERENCE, "id": ID, "name": "train:local"},
            "interfaces": [interface("eth1", f"10.0.0.{number}/24")],
        }
        self.fake = FakeEngine(name)
        self.image: dict[str, Any] | None = IMAGE
        """What its engine says of the image; None: it has none."""
        self.contents, self.looked = "", 0
        """What a foreign image says is in it, and how often it was asked."""

    def run(self, words: Any, **how: Any) -> Finished:
        if words[0] == "sh" and "docker" in words:
            self.looked += 1
            return Finished(code=0, out=self.contents.encode(), err=b"")
        if words[3] == _SOURCE:
            return Finished(code=0, out=json.dumps(self.answer).encode(), err=b"")
        self.before.get(words[4], lambda: None)()
        done = super().run(words, **how)
        self.after.get(words[4], lambda: None)()
        return done

    def engine(self) -> Any:
        return _Engine(self)


class _Engine:
    """An engine that has the image, if its node has it."""

    def __init__(self, node: Node) -> None:
        self.api = node.fake.api
        self.images = self
        self._node = node

    def info(self) -> dict[str, Any]:
        return {"SecurityOptions": ["name=seccomp,profile=default"]}

    def version(self) -> dict[str, Any]:
        return {"Components": [{"Name": "Engine"}]}

    def get(self, name: str) -> Any:
        if self._node.image is None:
            raise ImageNotFound(name)
        return SimpleNamespace(attrs=self._node.image)


class Cluster:
    def __init__(self, top: Path) -> None:
        self.remotes: dict[str, Any] = {}
        for number, name in enumerate(("node1", "node2"), 1):
            jobs = top / name / "jobs"
            jobs.mkdir(parents=True)
            self.remotes[name] = Node(jobs, name, number)
        self.folder = JobFolder(path=top / "runs" / "job")
        self.printed: list[str] = []

    def site(self, image: str = REFERENCE, supply: Any = None) -> ClusterSite:
        hosts = [remote.host for remote in self.remotes.values()]
        say = self.printed.append
        return ClusterSite(hosts, self.remotes, Path("/pins"), image=image, say=say, supply=supply)

    def jobs(self) -> list[list[str]]:
        """Return what is in each node's folder of jobs."""
        return [
            sorted(path.name for path in Path(remote.host.settings["job_dir"]).glob("[!.]*"))
            for remote in self.remotes.values()
        ]

    def at(self, name: str) -> Path:
        return Path(self.remotes[name].host.settings["job_dir"]) / "job"
