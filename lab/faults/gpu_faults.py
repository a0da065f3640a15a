"""Faults of a node's GPU stand-ins: one that is missing, an old driver or none, one that is busy, an Xid."""

import time
from dataclasses import dataclass

from lab.base import check
from lab.faults.fault import Fault, setting
from lab.nodes import gpus
from lab.nodes.node import Node
from lab.nodes.spec import DRIVER
from launcher.base.errors import RingmasterError


def _check_gpu(node: Node, gpu: int) -> None:
    count = gpus.read(node)["count"]
    if not 0 <= gpu < count:
        raise RingmasterError(f"--gpu={gpu}: {node.name} has {count} GPUs, the first is 0; see `gpus --help`")


@dataclass(frozen=True)
class MissingGpu(Fault):
    """A GPU has fallen off: nvidia-smi doesn't list it."""

    node: Node
    gpu: int = setting(0, "its number; several may be missing, one call for each")

    def __post_init__(self) -> None:
        _check_gpu(self.node, self.gpu)

    def apply(self) -> None:
        gpus.change(self.node, missing=sorted({*gpus.read(self.node)["missing"], self.gpu}))

    def undo(self) -> None:
        gpus.change(self.node, missing=sorted({*gpus.read(self.node)["missing"]} - {self.gpu}))


@dataclass(frozen=True)
class OldDriver(Fault):
    """The node's driver is of another version."""

    node: Node
    version: str = setting("535.183.01", "the version it shows")

    def __post_init__(self) -> None:
        check.pattern("--version", self.version, DRIVER, "a version such as 535.183.01")

    def apply(self) -> None:
        gpus.change(self.node, other_driver=self.version)

    def undo(self) -> None:
        gpus.change(self.node, other_driver="")


@dataclass(frozen=True)
class NoDriver(Fault):
    """nvidia-smi is there and can't reach the driver, as after a kernel update."""

    node: Node

    def apply(self) -> None:
        gpus.change(self.node, driver_loaded=False)

    def undo(self) -> None:
        gpus.change(self.node, driver_loaded=True)


@dataclass(frozen=True)
class BusyGpu(Fault):
    """Somebody else's process holds memory of a GPU."""

    node: Node
    gpu: int = setting(0, "its number")
    mib: int = setting(40000, "MiB of its memory that are held")

    def __post_init__(self) -> None:
        _check_gpu(self.node, self.gpu)
        check.number("--mib", self.mib, 1, 10**6)

    def apply(self) -> None:
        gpus.change(self.node, processes=[{"gpu": self.gpu, "pid": 4242, "name": "python3", "mib": self.mib}])

    def undo(self) -> None:
        gpus.change(self.node, processes=[])


@dataclass(frozen=True)
class Xid(Fault):
    """The kernel's log of this node shows an Xid, the driver's report of a GPU's fault."""

    node: Node
    code: int = setting(79, "the Xid, such as 79 (fallen off the bus) or 48 (memory error)")

    def __post_init__(self) -> None:
        check.number("--code", self.code, 1, 999)

    def apply(self) -> None:
        text = {79: "GPU has fallen off the bus.", 48: "DBE (double bit error)", 94: "Contained memory error"}
        line = f"NVRM: Xid (PCI:0000:10:00): {self.code}, pid='<unknown>', name=<unknown>, {text.get(self.code, '')}"
        with (self.node.folder / "kernel.log").open("a") as log:
            log.write(f"[{time.monotonic():12.6f}] {line}\n")
        self.node.run("/usr/lib/ringmaster-lab/link-stand-ins")

    def undo(self) -> None:
        (self.node.folder / "kernel.log").write_text("")
        self.node.run("/usr/lib/ringmaster-lab/link-stand-ins")
