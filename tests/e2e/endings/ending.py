"""A planted ending: a script that ends in a known way, what is done to it from outside, and what must be said of it."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.e2e.endings.scene import Scene

PROLOGUE = """
import os, signal, sys, time
from datetime import timedelta
from pathlib import Path

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

def marked(name, count=WORLD):
    while len(list(Path(os.environ["RUN_DIR"]).glob(name + "-*"))) < count:
        time.sleep(0.05)

def mark(name):
    # Complete at once: who finds it reads it.
    path = Path(os.environ["RUN_DIR"], f"{name}-{RANK}")
    path.with_name("." + path.name).write_text(str(os.getpid()))
    path.with_name("." + path.name).rename(path)

def join(seconds=5):
    # The ranks wait for each other first: however busy the machine is, the time-out is the group's alone.
    global dist, torch
    import torch, torch.distributed as dist
    mark("ready")
    marked("ready")
    dist.init_process_group("gloo", timeout=timedelta(seconds=seconds))
    dist.barrier()

def add():
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()

"""
"""What every script begins with. `mark` leaves a file in the job's folder, `<name>-<rank>`, with its process id."""

Act = Callable[[Scene], None]


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What must be said of an ending."""

    state: str = "failed"
    code: int = 1
    culprits: tuple[tuple[str, int | None], ...] = ()
    """Node and rank of who may be named: one, or several where each is right; none where nobody may be named.

    None as rank: the node itself."""
    provable: bool = True
    """Whether anybody can know who it was. If not, naming the right one as a suspect is the best there is."""
    reason: tuple[str, ...] = ()
    """Words of which each must be in the reason, where a culprit is named and not only suspected."""
    never: tuple[str, ...] = ()
    """Words that must not be in it."""
    said: str = ""
    """A pattern that one of the launcher's own lines must match."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """One planted ending."""

    name: str
    script: str
    """Follows the prologue."""
    expected: Expected
    act: Act | None = None
    """What is done from outside."""
    nodes: int = 2
    ranks: int | None = None
    """Processes per node; None: as many as there are without asking, on a machine without GPUs one."""
    arguments: str = ""
    quick: bool = False
    """Whether it belongs to `make test`; the others are the drill's."""

    @property
    def program(self) -> str:
        """The whole script."""
        return PROLOGUE + self.script
