"""A request: what the user asks for. Pure: nothing here looks at the machines."""

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
    placeholders: bool = False
    """Whether names in braces in the program's arguments are filled in."""
    strategy: str = ""
    """The bundled trainer's `--strategy`; empty for scripts."""
    program: Program
    data: Path | None = None
    """The user's own copy of the data set."""
    secrets: Path | None = None
    """A file of `KEY=value` lines, which only the program sees, in its environment."""
    python: Path | None = None
    """The user's own Python, for ranks that are processes of this machine (`RANK_PYTHON`)."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the user's shell has set; those in `environment.TUNABLE` win over the plan's own choice."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables for this job's ranks (`ENV`): they win over the inventory's and the nodes'."""


def choose_nodes(nodes: Sequence[T], wanted: int | None) -> Sequence[T]:
    """Return the first `wanted` of the inventory's nodes, in its order.

    Raises:
        RingmasterError: the inventory has fewer.
    """
    if wanted is None:
        return nodes[:DEFAULT_NODES]
    if wanted > len(nodes):
        raise RingmasterError(f"NODES={wanted}: the inventory has {len(nodes)}; ask for 1 to {len(nodes)}")
    return nodes[:wanted]
