"""What a plan is made from: what is known of the nodes, where a job's things are, and what its nodes have in common."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.job.container import ContainerFacts
from launcher.job.request import Request
from launcher.job.spawn_start import Meeting

NCCL, GLOO = "nccl", "gloo"


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """What is known of one node before anything starts."""

    name: str
    runtime: str
    address: str
    interface: str
    by_host_name: bool = False
    """Whether Gloo must ask the host name for the address: by the interface it would find another one."""
    gpus: tuple[str, ...] = ()
    """Device ids. Nodes that are processes on one machine list the same ones at first, then each its share."""
    cores: int
    """Cores of the machine the node is on."""
    settings: Mapping[str, Any]
    container: ContainerFacts | None = None
    """Where the node's part of a job runs in a container."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where a job's things are, as its ranks see them."""

    run: Path
    data: Path
    own_data: Path | None = None
    """The user's own copy of the data set."""
    checkpoints: Path
    code: Path
    """The code root: the working folder of every rank."""
    secrets: Path | None = None
    rank_program: Path
    python: Path
    agent: tuple[str, ...]
    """How torchrun is started."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What all nodes of a job have in common."""

    name: str
    request: Request
    facts: tuple[NodeFacts, ...]
    """Of each node, in order: the first is the head."""
    ranks: tuple[int, ...]
    """How many ranks each node runs, in the same order."""
    backend: str
    backend_chosen: bool
    places: Places
    port: int
    resumes: bool

    @property
    def own_processes(self) -> bool:
        """Whether torchrun starts the program once per node, and the program may start processes itself."""
        program, ranks = self.request.program, self.request.ranks
        return not program.bundled and (ranks == 1 or (ranks is None and program.spawn is not None))

    @property
    def own_port(self) -> int:
        """A port that is free on the head, for what the programs do there themselves."""
        return self.port + 1

    @property
    def meeting(self) -> Meeting:
        """Where programs that start their own processes meet."""
        head = self.facts[0]
        return Meeting(head=head.name, address=head.address, port=self.own_port, nodes=len(self.facts))

    @property
    def own_data(self) -> str | None:
        """The user's own copy of the data set, as the ranks see it."""
        return str(self.places.own_data) if self.places.own_data else None

    def processes_on_machine_of(self, fact: NodeFacts) -> int:
        """Return how many processes are to be expected on the machine that a node is on."""
        return sum(
            max(count, len(other.gpus)) if self.own_processes else count
            for other, count in zip(self.facts, self.ranks, strict=True)
            if other.address == fact.address
        )
