"""Jobs' containers on a node: found, ended and removed through its engine, and what the engine's answers mean."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import docker
from docker.errors import APIError, NotFound

from launcher.cluster.preflight.gpus import JobOnNode
from launcher.job.container import JOB_LABEL, NODE_LABEL
from launcher.ssh.refusals import one_line

STALE_S = 120.0
"""A container that was created but not started within this time belongs to a launcher that was killed in between."""


@dataclass(frozen=True, kw_only=True)
class JobContainer:
    """A job's container on one node."""

    id: str
    job: str
    node: str
    """The node's name in the job's plan."""
    state: str
    """The engine's word: created, running, paused, exited, …"""
    created: float
    """Unix time by the node's clock."""
    gpus: frozenset[str] | None
    """Device ids it holds; None: all of the node's."""
    exit_code: int | None = None
    finished: float | None = None
    """Unix time by the node's clock, once it has ended."""

    def holds(self, now: float) -> bool:
        """Return whether it keeps other jobs from the node; `now` is the node's time, unix seconds."""
        stale = self.state == "created" and now - self.created > STALE_S
        return self.state not in {"exited", "dead", "removing"} and not stale

    @property
    def as_job_on_node(self) -> JobOnNode:
        """What other jobs need to know of it."""
        return JobOnNode(name=self.job, devices=tuple(sorted(self.gpus or ())), all_gpus=self.gpus is None)


def engine_problem(info: Mapping[str, Any], version: Mapping[str, Any]) -> str:
    """Return why an engine can't run jobs, with the way out; empty if it can.

    Args:
        info: what it says of itself.
        version: what it is made of.
    """
    parts = [str(part.get("Name", "")) for part in version.get("Components") or ()]
    if any(part.startswith("Podman") for part in parts):
        return "what answers for its Docker engine is Podman, which runs no jobs: `sudo apt remove podman-docker`"
    if any("name=rootless" in option.split(",") for option in info.get("SecurityOptions") or ()):
        return (
            "its Docker engine runs without root, and can give ranks neither the node's network nor its GPUs: let "
            "/var/run/docker.sock be the system's engine (`sudo systemctl enable --now docker`)"
        )
    return ""


def find(engine: docker.DockerClient, job: str = "") -> list[JobContainer]:
    """Return all jobs' containers on the node, or those of one job; the oldest first."""
    label = f"{JOB_LABEL}={job}" if job else JOB_LABEL
    known = []
    for entry in engine.api.containers(all=True, filters={"label": label}):
        try:
            known.append(parse(engine.api.inspect_container(entry["Id"])))
        except NotFound:  # removed between the two calls
            continue
    return sorted(known, key=lambda each: (each.created, each.id))


def parse(inspected: Mapping[str, Any]) -> JobContainer:
    """Read the engine's description of a container (`docker inspect`)."""
    state = inspected["State"]
    ended = state["Status"] in {"exited", "dead"}
    return JobContainer(
        id=inspected["Id"],
        job=inspected["Config"]["Labels"][JOB_LABEL],
        node=inspected["Config"]["Labels"].get(NODE_LABEL, ""),
        state=state["Status"],
        created=unix_time(inspected["Created"]),
        gpus=_gpus(inspected["HostConfig"].get("DeviceRequests") or ()),
        exit_code=state["ExitCode"] if ended else None,
        finished=unix_time(state["FinishedAt"]) if ended else None,
    )


def _gpus(requests: Iterable[Mapping[str, Any]]) -> frozenset[str] | None:
    held: set[str] = set()
    for request in requests:
        if request.get("Count") == -1:
            return None
        held |= set(request.get("DeviceIDs") or ())
    return frozenset(held)


def in_the_way(known: Iterable[JobContainer], ours: JobContainer) -> JobContainer | None:
    """Return the container that keeps ours, which is created but not started, from its node; None if none does.

    Only older containers count, so that exactly one of two launchers gives way if both start at the same moment. Two
    containers share a node only if each has GPUs of its own.
    """
    for each in known:
        older = (each.created, each.id) < (ours.created, ours.id)
        apart = each.gpus and ours.gpus and not each.gpus & ours.gpus
        if older and not apart and each.holds(ours.created):
            return each
    return None


def kill(engine: docker.DockerClient, container: JobContainer) -> None:
    """End a container at once; it may have ended already."""
    try:
        if container.state == "paused":
            engine.api.unpause(container.id)  # a frozen container can't be killed
        engine.api.kill(container.id)
    except NotFound:
        pass
    except APIError as error:
        if error.status_code != 409:  # it has ended in the meantime
            raise


def remove(engine: docker.DockerClient, container_id: str) -> None:
    """Remove a container, running or not; it may be gone already."""
    try:
        engine.api.remove_container(container_id, force=True, v=True)
    except NotFound:
        pass
    except APIError as error:
        if error.status_code != 409:  # somebody else is removing it at this moment
            raise


def reason(error: Exception) -> str:
    """Return an error's words on one line: the engine's own, where it is the engine that refuses."""
    return one_line(Exception(error.explanation) if isinstance(error, APIError) and error.explanation else error)


def unix_time(text: str) -> float:
    """Return the unix time that the engine writes as `2026-01-02T03:04:05.123456789Z`."""
    stamp, _, fraction = text.rstrip("Z").partition(".")
    moment = datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp()
    return moment + float(f"0.{fraction or 0}")
