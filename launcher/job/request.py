"""What the user asked for, checked for form; the machines are not looked at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from launcher.base.errors import RingmasterError
from launcher.job.program import Program

DEFAULT_NODES = 2
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the user asked for, checked for form but not yet against the machines."""

    nodes: int | None = None
    """How many nodes; None: DEFAULT_NODES, or all where there are fewer."""
    gpus: str = "all"
    """Per node: `all`, a count, or device ids with commas."""
    ranks: int | None = None
    """Processes per node; None: one for each GPU, or as the inventory says."""
    strategy: str = ""
    """The bundled trainer's; empty for scripts, and where its arguments are no good."""
    program: Program
    data: Path | None = None
    """The user's own copy of the data set."""
    secrets: Path | None = None
    """A file of `KEY=value` lines, for the program's environment and nobody else's eyes."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables the user has set: they win over the plan's own choice for `TUNABLE` ones."""


def choose_nodes(nodes: Sequence[T], wanted: int | None) -> Sequence[T]:
    """The first `wanted` of the inventory's nodes, in its order."""
    if wanted is None:
        return nodes[:DEFAULT_NODES]
    if wanted > len(nodes):
        raise RingmasterError(f"NODES={wanted}: the inventory has {len(nodes)}; ask for 1 to {len(nodes)}")
    return nodes[:wanted]
