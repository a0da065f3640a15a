"""Jobs as nodes know them: containers and folders."""

import os
from pathlib import Path
from typing import Any

from launcher.base.atomic_file import write_json
from launcher.cluster.engine.containers import JobContainer
from launcher.cluster.found_jobs import FoundJob, Part
from tests.support.cluster.engine import FakeEngine, job_container
from tests.support.cluster.local_remote import LocalRemote
from tests.support.plans import cluster_plan


def folder(**fields: Any) -> dict[str, Any]:
    """Return a job's folder as a node describes it."""
    unmarked = {"started": False, "stopped": False, "collected": False}
    return {"node": "", "made_at": 100.0, **unmarked, "summary": None, "last": None, **fields}


def job(*parts: Part, name: str = "job") -> FoundJob:
    return FoundJob(name=name, parts={f"node{number}": part for number, part in enumerate(parts, 1)})


class Node(LocalRemote):
    """A node that is this machine, with an engine of its own."""

    def __init__(self, top: Path, name: str, address: str = "") -> None:
        super().__init__(top / name, name, address)
        (top / name).mkdir()
        self.jobs = top / name
        self.fake = FakeEngine(name)
        self.engine_fails: Exception | None = None

    def engine(self) -> Any:
        if self.engine_fails:
            raise self.engine_fails
        return self.fake

    def have(self, name: str, *, collected: bool = False, at: float = 1000.0, planned: str = "", of: str = "") -> None:
        """Create a job's folder; `planned` is this node's name in the plan, which is that of a job called `of`."""
        (self.jobs / name / "run").mkdir(parents=True)
        plan = self.jobs / name / "plan.json"
        write_json(plan, cluster_plan(2, name=of or name).as_json())
        (self.jobs / name / "node").write_text(planned)
        os.utime(plan, (at, at))
        if collected:
            (self.jobs / name / "collected").touch()


def there(state: str, code: int | None = None, finished: float | None = None) -> JobContainer:
    return job_container(state=state, exit_code=code, finished=finished)


ENDED = Part(container=there("exited", 0, 150.0), folder=folder(), now=160.0)
FETCHED = Part(folder=folder(collected=True, summary={"state": "succeeded", "exit_code": 0, "failure": None}))
