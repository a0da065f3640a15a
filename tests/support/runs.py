"""Folders of jobs that ran here."""

import json
import os
import time
from pathlib import Path

from launcher.job import folder as job
from launcher.job.folder import JobFolder
from launcher.job.plan import Plan
from tests.support.plans import facts, plan_for


def made(runs: Path, name: str, age: float, plan: Plan | None = None) -> JobFolder:
    """Create a job's folder that is `age` seconds old."""
    folder = JobFolder(path=runs / name)
    job.create(folder, plan or plan_for(facts(1)))
    content = json.loads(folder.plan.read_text())
    folder.plan.write_text(json.dumps({**content, "name": name}))
    (folder.checkpoints / "step.pt").write_bytes(os.urandom(100_000))
    os.utime(folder.plan, (time.time() - age,) * 2)
    return folder
