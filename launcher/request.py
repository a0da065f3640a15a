"""What the user asked for, checked for form; the machines are not looked at."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from launcher.errors import RingmasterError
from launcher.program import Program

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


def parse_nodes(text: str) -> int | None:
    """`NODES`: a whole number from 1 up; empty is the default."""
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) < 1:
        raise RingmasterError(f"NODES={text}: must be a whole number from 1 up to the nodes in the inventory")
    return int(text)


def parse_gpus(text: str) -> str:
    """`GPUS`: `all`, a count, or device ids with commas; empty is all."""
    if not text:
        return "all"
    if not re.fullmatch(r"all|[0-9]{1,4}|\w[\w-]*(,\w[\w-]*)*,?", text):
        raise RingmasterError(f"GPUS={text}: must be 'all', a count per node, or device ids such as 0,2 (one: 2,)")
    return text


def parse_ranks(text: str) -> int | None:
    """`RANKS`: a whole number from 1 up; empty is one for each GPU, or as the inventory says."""
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,4}", text) or int(text) < 1:
        raise RingmasterError(f"RANKS={text}: must be a whole number from 1 up, the processes on each node")
    return int(text)


def choose_nodes(nodes: Sequence[T], wanted: int | None) -> Sequence[T]:
    """The first `wanted` of the inventory's nodes, in its order."""
    if wanted is None:
        return nodes[:DEFAULT_NODES]
    if wanted > len(nodes):
        raise RingmasterError(f"NODES={wanted}: the inventory has {len(nodes)}; ask for 1 to {len(nodes)}")
    return nodes[:wanted]
