"""The GPU stand-ins of a node: what its nvidia-smi shows, and how it misbehaves. There are no GPUs."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.fault import Fault
from tests.lab.node import Node
from tests.lab.spec import NodeSpec


def initial(spec: NodeSpec) -> dict[str, Any]:
    """What nvidia-smi shows on a new node."""
    return {
        "node": spec.name,
        "count": spec.gpus,
        "model": spec.gpu_model,
        "driver": spec.driver,
        "driver_loaded": True,
        "missing": [],
        "processes": [],
    }


def write(folder: Path, state: dict[str, Any]) -> None:
    (folder / "gpus.json").write_text(json.dumps(state, indent=2) + "\n")


def change(node: Node, **changed: Any) -> None:
    """Change what the node's nvidia-smi shows from now on."""
    write(node.folder, {**json.loads((node.folder / "gpus.json").read_text()), **changed})


def set_gpus(node: Node, *, count: int, model: str = "", driver: str = "") -> None:
    """Give the node `count` GPUs; 0 takes nvidia-smi away."""
    change(node, count=count, model=model or node.spec.gpu_model, driver=driver or node.spec.driver)
    node.change_settings(GPU=int(count > 0))
    node.run("/usr/lib/ringmaster-lab/link-stand-ins")


def set_toolkit(node: Node, *, present: bool) -> None:
    """Put the runtime hook there or take it away; the engine looks for it once, at its start."""
    node.change_settings(TOOLKIT=int(present))
    node.run("/usr/lib/ringmaster-lab/link-stand-ins")
    if node.succeeds("systemctl", "is-active", "--quiet", "docker"):
        node.run("systemctl", "reset-failed", "docker")
        node.run("systemctl", "restart", "docker")


@dataclass(frozen=True)
class MissingGpu(Fault):
    """A GPU has fallen off: nvidia-smi doesn't list it."""

    node: Node
    gpu: int = 0

    def apply(self) -> None:
        change(self.node, missing=[self.gpu])

    def undo(self) -> None:
        change(self.node, missing=[])


@dataclass(frozen=True)
class OldDriver(Fault):
    """The node's driver is of another version."""

    node: Node
    version: str = "535.183.01"

    def apply(self) -> None:
        change(self.node, driver=self.version)

    def undo(self) -> None:
        change(self.node, driver=self.node.spec.driver)


@dataclass(frozen=True)
class NoDriver(Fault):
    """nvidia-smi is there and can't reach the driver, as after a kernel update."""

    node: Node

    def apply(self) -> None:
        change(self.node, driver_loaded=False)

    def undo(self) -> None:
        change(self.node, driver_loaded=True)


@dataclass(frozen=True)
class BusyGpu(Fault):
    """Somebody else's process holds memory of a GPU."""

    node: Node
    gpu: int = 0
    mib: int = 40000

    def apply(self) -> None:
        change(self.node, processes=[{"gpu": self.gpu, "pid": 4242, "name": "python3", "mib": self.mib}])

    def undo(self) -> None:
        change(self.node, processes=[])


@dataclass(frozen=True)
class Xid(Fault):
    """The kernel's log of this node shows an Xid, the driver's report of a GPU's fault."""

    node: Node
    code: int = 79

    def apply(self) -> None:
        text = {79: "GPU has fallen off the bus.", 48: "DBE (double bit error)", 94: "Contained memory error"}
        line = f"NVRM: Xid (PCI:0000:10:00): {self.code}, pid='<unknown>', name=<unknown>, {text.get(self.code, '')}"
        with (self.node.folder / "kernel.log").open("a") as log:
            log.write(f"[{time.monotonic():12.6f}] {line}\n")
        self.node.run("/usr/lib/ringmaster-lab/link-stand-ins")

    def undo(self) -> None:
        (self.node.folder / "kernel.log").write_text("")
        self.node.run("/usr/lib/ringmaster-lab/link-stand-ins")
