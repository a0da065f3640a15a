"""What a playbook is doing right now, from the notes that its callback plugin takes."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CurrentTask:
    """The task that is running."""

    name: str
    """`role : name`; empty before the first one."""
    started_at: float
    """Unix time of its start."""
    nodes: tuple[str, ...]
    """Those that have not finished it."""


def current_task(notes: str) -> CurrentTask:
    """Read the notes: lines of time, `task`/`begin`/`end`, and the task's or node's name, separated by tabs."""
    task, started_at = "", 0.0
    nodes: dict[str, None] = {}
    for line in notes.splitlines(keepends=True):
        fields = line.rstrip("\n").split("\t")
        if len(fields) != 3 or not line.endswith("\n"):  # still being written
            continue
        moment, event, name = fields
        if event == "task":
            task, started_at = name, float(moment)
            nodes.clear()
        elif event == "begin":
            nodes[name] = None
        else:
            nodes.pop(name, None)
    return CurrentTask(name=task, started_at=started_at, nodes=tuple(nodes))


def heartbeat(task: CurrentTask, now: float) -> str:
    """Return the line to show in a silence: `… still: docker_engine : Install packages (40 s) on node1, node2`."""
    if not task.name:
        return "… still: starting"
    where = f" on {', '.join(task.nodes)}" if task.nodes else ""
    return f"… still: {task.name} ({max(0, round(now - task.started_at))} s){where}"
