"""A job on a cluster whose nodes are folders here."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launcher.base.errors import ExitCode
from launcher.cluster import job_folders
from launcher.cluster.job import ClusterJob
from launcher.follow.cause.failure import Failure
from launcher.follow.outcome import Outcome
from launcher.job.folder import JobFolder, create
from tests.support.cluster.found_jobs import Node as FoundNode
from tests.support.job_folder import OWNER, TOKEN, packed
from tests.support.plans import cluster_plan

SUCCEEDED = Outcome(state="succeeded", exit_code=ExitCode.SUCCEEDED)
FAILED = Outcome(
    state="failed",
    exit_code=ExitCode.FAILED,
    failure=Failure(node="node1", rank=0, exit_code=1, signal=None, reason="boom", log_tail=(), hint=None),
)
STOPPED = Outcome(state="stopped", exit_code=ExitCode.TERMINATED)
UNKNOWN = Outcome(
    state="unknown",
    exit_code=ExitCode.CLUSTER,
    failure=Failure(node=None, rank=None, exit_code=None, signal=None, reason="gone", log_tail=(), hint=None),
)


class Node(FoundNode):
    """A node that tells a test when its containers are about to be removed."""

    before_removal: Callable[[], None] | None = None

    def engine(self) -> Any:
        if self.before_removal:
            self.before_removal()
        return super().engine()


class Nodes:
    """Two nodes with a job's folder each, and that job's folder here."""

    kind: type[Node] = Node

    def __init__(self, top: Path) -> None:
        self.remotes: dict[str, Any] = {name: self.kind(top, name) for name in ("node1", "node2")}
        self.dirs: dict[str, Path] = {name: remote.jobs for name, remote in self.remotes.items()}
        self.plan = cluster_plan(2, name="job")  # with other folders than the inventory's
        self.folder = JobFolder(path=top / "runs" / "job")
        create(self.folder, self.plan)
        self.printed: list[str] = []
        self.jobs: list[ClusterJob] = []
        plan = json.dumps(self.plan.as_json())
        for name, remote in self.remotes.items():
            words = ("prepare", str(self.dirs[name]), "job", OWNER, str(top / "data" / name), TOKEN)
            files = packed(("plan.json", plan), ("node", name), ("secrets", "KEY=geheim"), ("code/train.py", "x"))
            job_folders.ask(remote, *words, files=files)
            remote.fake.put("job", "exited")

    def job(self, whose: str = TOKEN, **how: Any) -> ClusterJob:
        say = self.printed.append
        self.jobs.append(ClusterJob(self.plan, self.folder, self.remotes, Path("/p"), say, token=whose, **how))
        return self.jobs[-1]

    def end(self, job: ClusterJob, outcome: Outcome) -> Outcome:
        """Collect the job's results and finish it."""
        known = job.collect(outcome)
        job.finish(known, {"state": known.state, "exit_code": int(known.exit_code), "failure": None})
        return known

    def write(self, node: str, name: str, content: str = "x") -> None:
        path = self.dirs[node] / "job/run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def left(self, node: str) -> list[str]:
        top = self.dirs[node] / "job"
        return sorted(str(path.relative_to(top)) for path in top.rglob("*") if not path.is_dir())

    def containers(self) -> list[list[str]]:
        return [remote.fake.containers_of for remote in self.remotes.values()]

    def here(self, name: str) -> str | None:
        path = self.folder.path / name
        return path.read_text() if path.exists() else None
