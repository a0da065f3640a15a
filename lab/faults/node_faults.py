"""Faults of nodes: killed, frozen, rebooting, cut off, full, short of memory. Each with its undo."""

import contextlib
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lab.base import check
from lab.faults.fault import Fault, setting
from lab.nodes import ready
from lab.nodes.files import File, clock_environment, environment_file
from lab.nodes.node import Node
from lab.nodes.spec import LEAST_MEMORY_MB, MOST_MEMORY_MB, MOST_SECONDS
from launcher.base.errors import RingmasterError

# The raw table sees a packet before ufw's rules and all others, and `ufw reset` doesn't touch it.
_FIRST = ("iptables", "-w", "-t", "raw")
_BALLAST = "/var/tmp/ringmaster-lab-ballast"  # in the node


@dataclass(frozen=True)
class Kill(Fault):
    """The power fails: every process is gone at once. Undo: the node boots again."""

    node: Node

    def apply(self) -> None:
        if self.node.state == "paused":
            self.node.container.unpause()
        if self.node.state == "running":
            self.node.container.kill()

    def undo(self) -> None:
        self.node.container.start()
        ready.await_systemd(self.node)


@dataclass(frozen=True)
class Freeze(Fault):
    """Every process stands still, and connections stay open, as with a hung kernel."""

    node: Node

    def apply(self) -> None:
        state = self.node.state
        if state not in {"running", "paused"}:
            raise RingmasterError(f"{self.node.name} is {state} and can't be frozen; `kill --undo` boots it")
        if state == "running":
            self.node.container.pause()

    def undo(self) -> None:
        if self.node.state == "paused":
            self.node.container.unpause()


@dataclass(frozen=True)
class Reboot(Fault):
    """An orderly reboot. It undoes itself; undo waits until the node is back."""

    node: Node

    def apply(self) -> None:
        self.node.container.restart(timeout=30)

    def undo(self) -> None:
        ready.await_systemd(self.node)


@dataclass(frozen=True)
class Partition(Fault):
    """No packet passes between two nodes, on any of their cards, and neither is notified."""

    node: Node
    other: Node

    def __post_init__(self) -> None:
        if self.node.name == self.other.name:
            raise RingmasterError(f"partition {self.node.name} {self.other.name}: name two different nodes")

    def apply(self) -> None:
        for here, there in self._directions:
            for address in there.addresses:
                _drop(here, "-s", address)

    def undo(self) -> None:
        with contextlib.ExitStack() as both:  # the second direction also if the first fails
            for here, there in self._directions:
                both.callback(_pass_all, here, there.addresses)

    @property
    def _directions(self) -> tuple[tuple[Node, Node], tuple[Node, Node]]:
        return (self.node, self.other), (self.other, self.node)


@dataclass(frozen=True)
class CutSsh(Fault):
    """The operator's packets to the node's sshd are lost, also those of open connections."""

    node: Node

    @property
    def _rule(self) -> tuple[str, ...]:
        settings = self.node.read_settings()
        return ("-s", settings["GATEWAY"], "-p", "tcp", "--dport", settings["SSH_PORT"])

    def apply(self) -> None:
        _drop(self.node, *self._rule)

    def undo(self) -> None:
        _pass(self.node, *self._rule)


@dataclass(frozen=True)
class FillDisk(Fault):
    """The node's disk, which is its /var, has only a few MiB left. This takes no room on this machine."""

    node: Node
    left_mb: int = setting(0, "MiB that stay free")

    def __post_init__(self) -> None:
        check.number("--left-mb", self.left_mb, 0, self.node.spec.disk_gb << 10)

    def apply(self) -> None:
        self.undo()
        free = int(self.node.run("df", "--output=avail", "-B1", "/var").split()[-1])
        self.node.run("fallocate", "-l", str(max(free - (self.left_mb << 20), 4096)), _BALLAST, check=False)
        if self.left_mb == 0:  # the rest that fallocate's own bookkeeping left
            self.node.run("sh", "-c", f"cat /dev/zero >>{_BALLAST} 2>/dev/null || true")

    def undo(self) -> None:
        self.node.run("rm", "-f", _BALLAST)


@dataclass(frozen=True)
class LimitMemory(Fault):
    """The node, with everything that its engine runs, has only a few MiB of memory."""

    node: Node
    mb: int = setting(512, "MiB of memory, without swap")

    def __post_init__(self) -> None:
        check.number("--mb", self.mb, LEAST_MEMORY_MB, MOST_MEMORY_MB)

    def apply(self) -> None:
        self.node.container.update(mem_limit=f"{self.mb}m", memswap_limit=f"{self.mb}m")

    def undo(self) -> None:
        # The engine can't remove a limit, only raise it: to everything that this machine has.
        limit = self.node.spec.memory_mb << 20 or _machine(self.node)["MemTotal"]
        self.node.container.update(mem_limit=limit, memswap_limit=limit)


@dataclass(frozen=True)
class Pin(Fault):
    """The node, with everything that its engine runs, computes only on these cores of the machine."""

    node: Node
    cores: str = setting("0", "such as 0, 0-1 or 0,2")

    def __post_init__(self) -> None:
        check.cores("--cores", self.cores)

    def apply(self) -> None:
        # On cgroup v1 a group can't become smaller than the groups inside it: those come first, from the innermost.
        self._write(self.cores, reversed(self._groups()))
        self.node.container.update(cpuset_cpus=self.cores)

    def undo(self) -> None:
        cores = self.node.spec.cores or f"0-{_machine(self.node)['NCPU'] - 1}"
        self.node.container.update(cpuset_cpus=cores)
        self._write(cores, self._groups())

    def _groups(self) -> list[str]:
        """Return the cpusets inside the node's own, outer ones first; none on cgroup v2, where they follow it."""
        listed = self.node.run(
            "sh", "-c", "find /sys/fs/cgroup/cpuset -mindepth 2 -name cpuset.cpus 2>/dev/null || true"
        )
        return sorted(listed.split(), key=lambda path: path.count("/"))

    def _write(self, cores: str, groups: Iterable[str]) -> None:
        script = "".join(f"echo {cores} >{shlex.quote(path)} || true\n" for path in groups)
        self.node.run("sh", "-c", script or "true")


@dataclass(frozen=True)
class ClockOffset(Fault):
    """Every login from now on, with ssh and through sudo, sees a clock that is ahead."""

    node: Node
    seconds: int = setting(30, "by how much; less than 0: behind")

    def __post_init__(self) -> None:
        check.number("--seconds", self.seconds, -MOST_SECONDS, MOST_SECONDS)

    def apply(self) -> None:
        self._write(self.seconds)

    def undo(self) -> None:
        self._write(self.node.spec.clock)

    def _write(self, seconds: int) -> None:
        lines = self.node.run("cat", "/etc/environment").splitlines()
        ours = clock_environment(1)
        kept = [line for line in lines if line.partition("=")[0] not in ours]
        content = "".join(f"{line}\n" for line in kept) + environment_file(clock_environment(seconds))
        self.node.place({"/etc/environment": File(content=content)})


def _machine(node: Node) -> dict[str, Any]:
    client = node.container.client
    assert client is not None
    return dict(client.info())


def _drop(node: Node, *match: str) -> None:
    if not node.succeeds(*_FIRST, "-C", "PREROUTING", *match, "-j", "DROP"):
        node.run(*_FIRST, "-I", "PREROUTING", *match, "-j", "DROP")


def _pass(node: Node, *match: str) -> None:
    """Remove a rule; a node that is down has lost its rules, a frozen one still has them, and reports it."""
    up = node.state in {"running", "paused"}
    if up and node.succeeds(*_FIRST, "-C", "PREROUTING", *match, "-j", "DROP"):
        node.run(*_FIRST, "-D", "PREROUTING", *match, "-j", "DROP")


def _pass_all(node: Node, addresses: Iterable[str]) -> None:
    for address in addresses:
        _pass(node, "-s", address)
