"""The arguments of the program on one node: the user's, placeholders filled in, and what a spawn-style script lacks."""

from collections.abc import Mapping

from launcher.job import spawn_start
from launcher.job.facts import Job
from launcher.job.placeholders import FOLDERS, fill_in


def node_arguments(job: Job, node_rank: int, variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the program's arguments on a node.

    Args:
        variables: those of its ranks, for the placeholders that are called as they are.

    Raises:
        RingmasterError: the user's arguments contradict the plan.
    """
    own, style = _filled(job, node_rank, variables), job.request.program.spawn
    if not (style and job.own_processes):
        return own
    by_node = [_filled(job, number, variables) for number in range(len(job.facts))]
    spawn_start.refuse_contradictions(style, by_node, job.meeting)
    # Before the user's: theirs may end in words that are no options any more.
    return (*spawn_start.options(style, own, job.meeting, str(node_rank)), *own)


def _filled(job: Job, node_rank: int, variables: Mapping[str, str]) -> tuple[str, ...]:
    if not job.request.placeholders:
        return job.request.program.arguments
    values = {
        "node_rank": str(node_rank),
        "nodes": str(len(job.facts)),
        "head": job.meeting.address,
        "port": str(job.own_port),
        "init_method": job.meeting.url,
        **{name: variables[name] for name in FOLDERS},
    }
    return tuple(fill_in(word, values) for word in job.request.program.arguments)
