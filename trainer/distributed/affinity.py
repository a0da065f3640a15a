"""CPU affinity: how many threads of a rank compute, and which cores they run on."""

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from trainer.distributed import cores
from trainer.distributed.world import World

_THREADS = Path("/proc/self/task")


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Where a rank computes."""

    threads: int
    cores: tuple[int, ...] | None
    """The cores it is bound to; None if the system places it."""

    def __str__(self) -> str:
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        if self.cores is None:
            return threads
        return f"{threads} on core{'s' if len(self.cores) > 1 else ''} {', '.join(map(str, sorted(self.cores)))}"


def take(world: World, bind: str) -> Seat:
    """Bind this rank if `bind` is auto and it has cores of its own, and fit its threads to them; a collective.

    It never uses more threads than torch would start, so OMP_NUM_THREADS, which the launcher sets, is an upper limit.
    """
    ranks = world.gather(cores.facts(gpu=gpu_address(world.device)))
    own = cores.own_cores(ranks, world.rank) if bind == "auto" else None
    if own is not None and not _bind(own):
        own = None
    threads = min(torch.get_num_threads(), cores.share(ranks, world.rank))
    torch.set_num_threads(threads)
    return Seat(threads=threads, cores=own)


def gpu_address(device: torch.device) -> str | None:
    """Return a GPU's PCI address as the kernel writes it; None for other devices, or if torch doesn't know it."""
    if device.type != "cuda":
        return None
    properties = torch.cuda.get_device_properties(device)
    parts = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    if None in parts:
        return None
    domain, bus, slot = parts
    return f"{domain:04x}:{bus:02x}:{slot:02x}.0"


def _bind(own: tuple[int, ...]) -> bool:
    """Bind every thread of this process, or none. New threads inherit the affinity of the one that starts them."""
    before = os.sched_getaffinity(0)
    threads = [0, *(int(path.name) for path in _THREADS.glob("*"))]
    try:
        _put(threads, own)
    except OSError:  # the control group has other cores now, or the system forbids it
        with suppress(OSError):
            _put(threads, before)
        return False
    return True


def _put(threads: Iterable[int], own: Iterable[int]) -> None:
    for thread in threads:
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(thread, own)
