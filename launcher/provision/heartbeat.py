"""What a playbook is doing right now, from the notes its callback plugin takes."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The task that runs."""

    task: str
    """`role : name`; empty before the first one."""
    since: float
    """Unix time of its start."""
    nodes: tuple[str, ...]
    """Those that have not finished it."""


def standing(notes: str) -> Standing:
    """Read the notes: lines of time, `task`/`begin`/`end`, and the task's or node's name, separated by tabs."""
    task, since = "", 0.0
    nodes: dict[str, None] = {}
    for line in notes.splitlines(keepends=True):
        fields = line.rstrip("\n").split("\t")
        if len(fields) != 3 or not line.endswith("\n"):  # being written just now
            continue
        moment, what, name = fields
        if what == "task":
            task, since = name, float(moment)
            nodes.clear()
        elif what == "begin":
            nodes[name] = None
        else:
            nodes.pop(name, None)
    return Standing(task=task, since=since, nodes=tuple(nodes))


def heartbeat(now: Standing, at: float) -> str:
    """The line for a silence: `… still: docker_engine : Install packages (40 s) on node1, node2`."""
    if not now.task:
        return "… still: starting"
    where = f" on {', '.join(now.nodes)}" if now.nodes else ""
    return f"… still: {now.task} ({max(0, round(at - now.since))} s){where}"
