"""Where a job on a cluster continues from: asks the node that has the earlier job's checkpoints."""

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ON_NODE
from launcher.cluster.engine import containers
from launcher.cluster.transfer.upload import Call, Say
from launcher.inventory.hosts import Host, job_dir
from launcher.job import checkpoint as checkpoints
from launcher.job.checkpoint import Checkpoint, cant_be_asked
from launcher.job.folder import Earlier
from launcher.on_node.checkpoints import Found
from launcher.ssh.connection import Remote, Trouble

Reach = Callable[[Host], AbstractContextManager[Remote]]
"""Connects to a node, unless it is connected."""


def find_host(name: str, address: str, hosts: Iterable[Host]) -> Host | None:
    """Return the host that was an earlier job's node: by its name, else by its address."""
    hosts = tuple(hosts)
    named = (host for host in hosts if host.name == name)
    at_address = (host for host in hosts if host.address == address)
    return next(named, None) or next(at_address, None)


def newest(job: Earlier, head: Host | None, reach: Reach, say: Say) -> Checkpoint:
    """Return the newest valid checkpoint of an earlier job, on its first node or here.

    Only the first node's count: what other nodes have is older or a part.

    Raises:
        RingmasterError: the job still runs, the node can't be asked (both 3), or there is no valid checkpoint (4).
    """
    if not job.head:
        return checkpoints.newest_here(job)
    if head is None:
        raise cant_be_asked(job, f"{job.head} is not in the inventory")
    try:
        with reach(head) as remote:
            runs = any(each.holds(time.time()) for each in containers.find(remote.engine(), job.folder.name))
            answer = {} if runs else _ask(job, remote, say)
    except Trouble as error:
        raise cant_be_asked(job, str(error).removeprefix(f"{head.name}: ") or type(error).__name__) from error
    if runs:
        name = job.folder.name
        raise RingmasterError(
            f"{job.given}: job {name} still runs; make stop NAME={name} ends it, if it can with a checkpoint",
            exit_code=ExitCode.NOT_STARTED,
        )
    there, problems = _understood(job, head, answer)
    here, local_problems = checkpoints.found_here(job)
    chosen = checkpoints.choose(there, here)
    if chosen is there is not None:
        local_problems = []  # nobody needs to know of what is not used
    return checkpoints.told(job, chosen, [*problems, *local_problems])


def _ask(job: Earlier, remote: Remote, say: Say) -> dict[str, Any]:
    folder = f"{job_dir(remote.host)}/{job.folder.name}"
    program = (ON_NODE / "checkpoints.py").read_text(encoding="utf-8")
    return Call(remote, (checkpoints.verb_for(job), folder), say, program=program).ask([])


def _understood(job: Earlier, head: Host, answer: dict[str, Any]) -> tuple[Checkpoint | None, list[str]]:
    """Return the checkpoint that a node has, if any, and what the user is told about it."""
    if not answer["there"]:
        return None, [f"{head.name} no longer has the folder of job {job.folder.name}, so the copy here counts"]
    if answer["node"] not in {"", job.head} or not same_plan(answer["plan"], job.stored):
        name = job.folder.name
        raise RingmasterError(
            f"{job.given}: runs/{name} is of another job than the one of this name on {head.name}: move it away and "
            f"make logs NAME={name} fetches that one, or RESUME=runs/{name} continues from the copy here"
        )
    try:
        changed, folder = float(answer["changed"]), str(answer["folder"])
        found = Found(answer["files"], answer["step"], changed, answer["problems"], folder)
        there = checkpoints.checkpoint_of(job, found, node=head.name)
    except (KeyError, TypeError, ValueError) as error:
        raise cant_be_asked(job, f"its answer can't be read ({error})") from error
    return there, [f"{each}, on {head.name}" for each in found.problems]


def same_plan(one: Any, other: Any) -> bool:
    """Return whether two plans are of the same job; one may have been written by another version, with fields more."""
    if not isinstance(one, dict):
        return one is None  # a plan that can't be read tells nothing
    return all(one[key] == other[key] for key in one.keys() & other.keys())
