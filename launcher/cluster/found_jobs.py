"""The jobs that the nodes know of: their containers, their folders, and what the two mean together."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from launcher.base.errors import ExitCode, RingmasterError
from launcher.cluster import job_folders
from launcher.cluster.engine import containers
from launcher.cluster.engine.containers import JobContainer
from launcher.follow.outcome import seen_end
from launcher.inventory.hosts import job_dir
from launcher.job.plan import NAME, Plan
from launcher.on_node.job_folder import knows_more
from launcher.ssh.connection import Remote, Trouble
from launcher.ssh.pool import on_all

_PLACING_S = 900.0
"""A job without containers that is younger than this is still being placed: code and checkpoints take a while."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """What one node knows of a job."""

    container: JobContainer | None = None
    folder: Mapping[str, Any] = field(default_factory=dict)
    """As `on_node/job_folder.py` describes it; empty if there is none."""
    now: float = 0.0
    """The node's time, unix seconds."""


@dataclass(frozen=True, kw_only=True)
class FoundJob:
    """One job, on the nodes that know of it."""

    name: str
    parts: Mapping[str, Part]
    """By the inventory's name of the node, in its order."""

    @property
    def runs(self) -> bool:
        """Whether any of its containers runs."""
        ended = {"created", "exited", "dead", "removing"}
        return any(part.container and part.container.state not in ended for part in self.parts.values())

    @property
    def open(self) -> bool:
        """Whether results have yet to be fetched."""
        return self.runs or any(part.folder and not part.folder["collected"] for part in self.parts.values())

    @property
    def state(self) -> str:
        """Its state, in a word or two."""
        states = {part.container.state for part in self.parts.values() if part.container}
        if "paused" in states:
            return "frozen"
        if self.runs:
            return "running" if "created" not in states else "starting"
        if not self.open and any(part.folder for part in self.parts.values()):
            return str((self.summary or {}).get("state", "unknown"))
        if self.begun:
            return "ended, not fetched" if self._told else "unknown"
        return "starting" if (self.age_s or 0.0) < _PLACING_S else "never started"

    @property
    def summary(self) -> Mapping[str, Any] | None:
        """Its summary, from the node where a launcher that closed it knew most of its end."""
        best = None
        for part in self.parts.values():
            told = part.folder.get("summary")
            best = told if knows_more(told, best) else best
        return best

    @property
    def begun(self) -> bool:
        """Whether it may have run: only a job that no launcher was about to start has certainly not."""
        return any(
            part.container.state != "created" if part.container else bool(part.folder.get("started"))
            for part in self.parts.values()
        ) or any(part.folder.get(sign) for part in self.parts.values() for sign in ("summary", "stopped", "last"))

    @property
    def failed(self) -> list[str]:
        """The nodes where it has ended badly."""
        return [name for name, part in self.parts.items() if part.container and part.container.exit_code]

    @property
    def _told(self) -> bool:
        """Whether its containers, or somebody who saw its end, tell how it ended."""
        noted = seen_end(self.summary) or any(part.folder.get("stopped") for part in self.parts.values())
        return bool(noted or self.failed or all(part.container for part in self.parts.values()))

    @property
    def age_s(self) -> float | None:
        """Seconds since it was started, by its nodes' own clocks."""
        ages = [part.now - part.folder["made_at"] for part in self.parts.values() if part.folder.get("made_at")]
        return max(ages) if ages else None

    @property
    def lasted_s(self) -> float | None:
        """Seconds from its start to its end; None while it runs, or if its end is not known."""
        lasted = []
        for part in self.parts.values():
            if part.container and (part.container.finished is None or not part.folder.get("made_at")):
                return None
            if part.container and part.container.finished is not None:
                lasted.append(part.container.finished - float(part.folder["made_at"]))  # both by that node's own clock
        return max(lasted, default=None)

    @property
    def last(self) -> Mapping[str, Any]:
        """The newest record of its metrics that has a step."""
        records = [part.folder["last"] for part in self.parts.values() if part.folder.get("last")]
        return max(records, key=lambda record: record["step"] if type(record.get("step")) is int else 0, default={})


def find_jobs(remotes: Mapping[str, Remote]) -> tuple[list[FoundJob], dict[str, str]]:
    """Ask all nodes for their jobs.

    Returns: the jobs, running ones first, then the newest first; and by name why a node could not answer.
    """
    silent: dict[str, str] = {}

    def tried(remote: Remote) -> dict[str, Part]:
        try:
            return ask(remote)
        except (KeyError, TypeError, ValueError, AttributeError):
            silent[remote.name] = "its answer about its jobs can't be read"
            return {}
        except Trouble as error:
            silent[remote.name] = str(error).removeprefix(f"{remote.name}: ")
            return {}

    def ask(remote: Remote) -> dict[str, Part]:
        answer = job_folders.ask(remote, "jobs", job_dir(remote.host))
        by_job = {each.job: each for each in containers.find(remote.engine())}
        return {
            name: Part(container=by_job.get(name), folder=answer["jobs"].get(name, {}), now=answer["time"])
            for name in sorted(set(answer["jobs"]) | set(by_job))
            if NAME.fullmatch(name)
        }

    known = on_all(remotes, tried)
    names = sorted({name for parts in known.values() for name in parts})
    jobs = [
        FoundJob(name=name, parts={node: parts[name] for node, parts in known.items() if name in parts})
        for name in names
    ]
    jobs.sort(key=lambda job: (not job.runs, job.age_s if job.age_s is not None else float("inf")))
    return jobs, silent


def choose_job(jobs: Sequence[FoundJob], name: str, *, running: bool) -> FoundJob | None:
    """Return the job called `name`; without a name the only one that runs, or, unless `running`, the newest.

    Raises:
        RingmasterError: there is no such job, or several run.
    """
    if name:
        for job in jobs:
            if job.name == name:
                return job
        known = ", ".join(job.name for job in jobs[:5]) or "none"
        raise RingmasterError(f"NAME={name}: no node knows such a job; known jobs: {known}")
    running_now = [job for job in jobs if job.runs]
    if len(running_now) > 1:
        names = ", ".join(job.name for job in running_now)
        raise RingmasterError(f"{len(running_now)} jobs are running ({names}): choose one with NAME=")
    if running_now or running:
        return running_now[0] if running_now else None
    return jobs[0] if jobs else None


def plan_of(job: FoundJob, remotes: Mapping[str, Remote]) -> tuple[Plan, dict[str, Remote]]:
    """Return the job's plan, and the connections to its nodes by the names that they have in the plan.

    Raises:
        RingmasterError: no node has the plan.
    """
    for name in job.parts:
        if name not in remotes:
            continue
        remote = remotes[name]
        try:
            with remote.sftp().open(f"{job_dir(remote.host)}/{job.name}/plan.json") as file:
                plan = Plan.from_json(json.loads(file.read()))
            if plan.name != job.name:
                continue
        except (KeyError, TypeError, ValueError, *Trouble):
            continue
        return plan, _by_planned_name(job, plan, remotes)
    raise RingmasterError(
        f"job {job.name}: its plan can't be read on {', '.join(job.parts)}; make stop NAME={job.name} removes it",
        exit_code=ExitCode.CLUSTER,
    )


def _by_planned_name(job: FoundJob, plan: Plan, remotes: Mapping[str, Remote]) -> dict[str, Remote]:
    """Connections by the plan's names, which may differ from ours: another inventory may have started the job.

    The container's label tells a node's name in the plan; if the container is gone, the job's folder; then the
    address; then our own name.
    """
    by_address = {node.address: node.name for node in plan.nodes}
    known = {node.name for node in plan.nodes}
    renamed = {}
    for ours, part in job.parts.items():
        if ours not in remotes:
            continue
        label = part.container.node if part.container else str(part.folder.get("node") or "")
        planned = label or by_address.get(remotes[ours].host.address, "") or ours
        if planned in known:
            renamed[planned] = remotes[ours]
    return renamed
