"""Which CPU cores a rank may really use: its affinity, its control group's quota, and the other ranks beside it.

Reading is separate from deciding, and starts at a given root, so that tests can make up trees. Free of torch.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

ROOT = Path("/")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What one rank sees of its cores."""

    machine: str
    """Identifies the machine, also from inside its containers: the boot's id."""
    cores: tuple[int, ...]
    """Core numbers that it may run on, with those of one physical core beside each other."""
    near: tuple[int, ...]
    """The ones that are close to its GPU; all of them if there is no GPU, or nothing is known."""
    quota: Fraction | None
    """CPU seconds per second that its control group may spend; None = no limit."""
    quota_of: str
    """Identifies that control group among those on the machine."""


def free_cores(root: Path = ROOT) -> int:
    """Return the whole cores that this process may use, at least 1: its affinity, and its control group's quota.

    This doesn't subtract what other ranks on the machine take; `share` does.
    """
    count, quota = len(os.sched_getaffinity(0)), cpu_quota(root)
    return count if quota is None else max(1, min(count, int(quota)))


def facts(root: Path = ROOT, *, gpu: str | None = None) -> Facts:
    """Return what this process sees now; once it is bound, it sees only the cores it is bound to.

    `gpu`: PCI address of the GPU it uses, such as `0000:17:00.0`.
    """
    cores = tuple(sorted(os.sched_getaffinity(0), key=lambda core: _place(root, core)))
    close = gpu_cores(gpu, root) if gpu else frozenset[int]()
    namespace = ""
    with suppress(OSError):
        namespace = str((root / "proc/self/ns/cgroup").readlink())
    return Facts(
        machine=_text(root / "proc/sys/kernel/random/boot_id").strip(),
        cores=cores,
        near=tuple(core for core in cores if core in close) or cores,
        quota=cpu_quota(root),
        quota_of=namespace + _text(root / "proc/self/cgroup"),
    )


def share(ranks: Sequence[Facts], rank: int) -> int:
    """Return whole cores for the `rank`-th of all ranks, at least 1: each core and each quota is divided evenly."""
    own = ranks[rank]
    beside = [other for other in ranks if other.machine == own.machine]
    cores = sum((Fraction(1, sum(core in other.cores for other in beside)) for core in own.cores), Fraction())
    if own.quota is not None:
        cores = min(cores, own.quota / sum(other.quota_of == own.quota_of for other in beside))
    return max(1, int(cores))


def own_cores(ranks: Sequence[Facts], rank: int) -> tuple[int, ...] | None:
    """Return the cores to bind the `rank`-th of all ranks to; None leaves its placement to the system.

    Ranks on one machine, also those of several nodes that are processes or containers there, divide the cores they have
    in common, near their GPUs if that is known. A rank alone keeps all its cores. So does every rank of a machine where
    some rank would have no core to itself, or where the ranks' cores overlap only in part.
    """
    machine = ranks[rank].machine
    pools = [frozenset(other.near) for other in ranks if other.machine == machine]
    if len(pools) == 1 or not machine:
        return None
    if any(one != other and one & other for one in pools for other in pools):
        return None
    if any(len(pool) < pools.count(pool) for pool in pools):
        return None
    own = ranks[rank].near
    sharing = [number for number, other in enumerate(ranks) if other.machine == machine and set(other.near) == set(own)]
    place, count = sharing.index(rank), len(sharing)
    return own[len(own) * place // count : len(own) * (place + 1) // count]


def gpu_cores(address: str, root: Path = ROOT) -> frozenset[int]:
    """Return the cores of the NUMA node that a PCI device is attached to; none if the kernel doesn't say.

    https://docs.kernel.org/admin-guide/abi-testing.html#abi-sys-bus-pci-devices-numa-node: -1 is "unknown".
    """
    node = _text(root / "sys/bus/pci/devices" / address.lower() / "numa_node").strip()
    if not node.isdecimal():
        return frozenset()
    return parse_core_list(_text(root / f"sys/devices/system/node/node{node}/cpulist"))


def parse_core_list(text: str) -> frozenset[int]:
    """Parse the kernel's list of cores, such as `0-3,8,10-11`."""
    numbers: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)


def cpu_quota(root: Path = ROOT) -> Fraction | None:
    """CPU seconds per second that the process's control group, or one above it, may spend; None = no limit.

    Version 2: `cpu.max`, https://docs.kernel.org/admin-guide/cgroup-v2.html; version 1: `cpu.cfs_quota_us`,
    https://docs.kernel.org/scheduler/sched-bwc.html.
    """
    groups = root / "sys/fs/cgroup"
    limits: list[Fraction] = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if not controllers:  # version 2, alone or beside version 1
            limits += [limit for mount in (groups, groups / "unified") for limit in _limits(mount, path)]
        elif "cpu" in controllers.split(","):
            limits += [limit for mount in {groups / controllers, groups / "cpu"} for limit in _limits(mount, path)]
    return min(limits, default=None)


def _limits(mount: Path, path: str) -> Iterator[Fraction]:
    """Yield limits of the group and of those above it. In a container the path may be the host's, with only its top."""
    group = mount / path.strip("/")
    for folder in (group, *group.parents):
        if not folder.is_relative_to(mount):
            return
        quota, _, period = _text(folder / "cpu.max").strip().partition(" ")
        quota = quota or _text(folder / "cpu.cfs_quota_us").strip()
        period = period or _text(folder / "cpu.cfs_period_us").strip()
        if quota.isdecimal() and period.isdecimal() and int(quota) and int(period):  # no limit is "max", or -1
            yield Fraction(int(quota), int(period))


def _place(root: Path, core: int) -> tuple[int, int, int]:
    """Return a sort key that puts the threads of one physical core beside each other."""
    topology = root / f"sys/devices/system/cpu/cpu{core}/topology"
    package, physical = (_text(topology / name).strip() for name in ("physical_package_id", "core_id"))
    known = package.isdecimal() and physical.isdecimal()
    return (int(package), int(physical), core) if known else (0, core, core)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except (OSError, ValueError):  # ValueError: a path with a zero byte
        return ""
