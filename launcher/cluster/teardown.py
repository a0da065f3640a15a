"""Remove what is left of a job on its nodes, and prove that nothing is."""

from collections.abc import Collection

from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.terminal import in_one_line
from launcher.cluster.engine import containers
from launcher.cluster.found_jobs import FoundJob, plan_of
from launcher.cluster.sockets import SOCKETS, has_socket
from launcher.ssh.connection import Remote, Trouble
from launcher.ssh.pool import Reached, on_all

_PROCESSES = """
import os, sys
label = os.fsencode("RINGMASTER_JOB=" + sys.argv[1])
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            if label in file.read().split(b"\\0"):
                print(pid)
    except OSError:
        pass
"""
"""Runs on a node: prints a job's processes, found by what is in their environment, never by name."""


def prove_gone(job: FoundJob, reached: Reached, *, unrecorded: Collection[str] = ()) -> ExitCode:
    """Remove a job's containers by their label, then look again: for containers, processes, the rendezvous port.

    Args:
        unrecorded: nodes where only the container tells how the job ended; there it is ended, and stays.

    Returns: CLUSTER if something is left, or if a node could not be looked at.
    """

    def prove(remote: Remote) -> list[str]:
        client = remote.engine()
        for container in containers.find(client, job.name):
            if remote.name in unrecorded:
                containers.kill(client, container)
            else:
                containers.remove(client, container.id)
        why = " (ended; it stays until its end can be recorded)" if remote.name in unrecorded else ""
        left = [f"container {each.id[:12]}{why}" for each in containers.find(client, job.name)]
        pids = remote.run(("python3", "-IS", "-c", _PROCESSES, job.name)).text.split()
        left += [f"process {pid}" for pid in pids]
        port = _port(job, remote)
        if port and has_socket(remote.run(SOCKETS).text, port, listening=True):
            left.append(f"port {port}")
        return left

    skipped = [name for name in _planned_nodes(job, reached) if name not in {*reached.remotes, *reached.missing}]
    left = on_all(reached.remotes, prove)
    for name, things in left.items():
        shown = (
            "STILL THERE: " + ", ".join(map(in_one_line, things)) if things else "no container, no process, port free"
        )
        print(f"{name}: {shown}")
    for name in reached.missing:
        print(f"{name}: not reached, so nothing is proved there")
    for name in skipped:
        print(f"{name}: the job is there too, but LIMIT or the inventory leaves it out: nothing is proved there")
    fine = not any(left.values()) and not reached.missing and not skipped
    return ExitCode.SUCCEEDED if fine else ExitCode.CLUSTER


def _planned_nodes(job: FoundJob, reached: Reached) -> list[str]:
    """The nodes that the job was started on, by our names if we know them; none if its plan can't be read."""
    try:
        plan, remotes = plan_of(job, reached.remotes)
    except RingmasterError:
        return []
    ours = {planned: remote.name for planned, remote in remotes.items()}
    return [ours.get(node.name, node.name) for node in plan.nodes]


def _port(job: FoundJob, remote: Remote) -> int:
    try:
        return plan_of(job, {remote.name: remote})[0].port
    except (KeyError, *Trouble):
        return 0
