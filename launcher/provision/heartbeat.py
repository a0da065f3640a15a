"""What a playbook is doing right now, from the notes that its callback plugin takes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from launcher.base.values import amount


@dataclass(frozen=True, kw_only=True)
class CurrentTask:
    """The task that is running."""

    name: str
    """`role : name`; empty before the first one."""
    started_at: float
    """Unix time of its start."""
    nodes: tuple[str, ...]
    """Those that have not finished it."""
    arrived: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """What is being brought to nodes: how many bytes are there, and of how many; 0: nobody knows."""


def current_task(notes: str) -> CurrentTask:
    """Read the notes: lines of time, event and name, separated by tabs.

    Events are `task`, and `begin` and `end` of a node; at `bytes` two numbers stand before the node's name.
    """
    task, started_at = "", 0.0
    nodes: dict[str, None] = {}
    arrived: dict[str, tuple[int, int]] = {}
    for line in notes.splitlines(keepends=True):
        fields = line.rstrip("\n").split("\t")
        if len(fields) != 3 or not line.endswith("\n"):  # still being written
            continue
        moment, event, name = fields
        if event == "task":
            task, started_at = name, float(moment)
            nodes.clear()
            arrived.clear()
        elif event == "begin":
            nodes[name] = None
        elif event == "bytes":
            done, of, node = name.split(" ", 2)
            arrived[node] = (int(done), int(of))
        else:
            nodes.pop(name, None)
    return CurrentTask(name=task, started_at=started_at, nodes=tuple(nodes), arrived=arrived)


def heartbeat(task: CurrentTask, now: float) -> str:
    """Return the line to show in a silence: `… still: docker_engine : Install packages (40 s) on node1, node2`."""
    if not task.name:
        return "… still: starting"
    where = f" on {', '.join(_node(task, name) for name in task.nodes)}" if task.nodes else ""
    if len(task.arrived) > 1:
        done, of = (sum(each) for each in zip(*task.arrived.values(), strict=True))
        where += f"; together {amount(done)} of {amount(of)}"
    return f"… still: {task.name} ({max(0, round(now - task.started_at))} s){where}"


def _node(task: CurrentTask, name: str) -> str:
    done, of = task.arrived.get(name, (0, 0))
    if not of:
        return f"{name} ({amount(done)} so far)" if done else name
    return f"{name} ({amount(done)} of {amount(of)})"
