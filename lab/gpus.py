"""The GPU stand-ins of a node: what its nvidia-smi shows, and how it misbehaves. There are no GPUs."""

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lab import check
from lab.fault import Fault, setting
from lab.node import Node
from lab.spec import DRIVER, NodeSpec
from launcher.base.errors import RingmasterError


def initial(spec: NodeSpec) -> dict[str, Any]:
    """What nvidia-smi shows on a new node."""
    return {
        "node": spec.name,
        "count": spec.gpus,
        "model": spec.gpu_model,
        "driver": spec.driver,
        "other_driver": "",
        "driver_loaded": True,
        "missing": [],
        "processes": [],
    }


def write(folder: Path, state: dict[str, Any]) -> None:
    (folder / "gpus.json").write_text(json.dumps(state, indent=2) + "\n")


def change(node: Node, **changed: Any) -> None:
    """Change what the node's nvidia-smi shows from now on."""
    write(node.folder, {**read(node), **changed})


def read(node: Node) -> dict[str, Any]:
    """What it shows now; a node of before a setting was thought of has its initial value."""
    return {**initial(node.spec), **json.loads((node.folder / "gpus.json").read_text())}


def faults(shown: dict[str, Any]) -> list[str]:
    """The stand-ins' misbehaviour in words for a list."""
    found = [f"missing_gpu={number}" for number in shown["missing"]]
    found += [f"shown_driver={shown['other_driver']}"] if shown["other_driver"] else []
    found += [] if shown["driver_loaded"] else ["no_driver"]
    return found + [f"busy_gpu={process['gpu']}" for process in shown["processes"]]


def reset(node: Node) -> None:
    """Show again what the node was asked to be."""
    if read(node) != initial(node.spec):
        write(node.folder, initial(node.spec))
    settings = node.read_settings()
    if settings["GPU"] != str(int(node.spec.gpus > 0)):
        set_gpus(node, count=node.spec.gpus)
    if settings["TOOLKIT"] != str(int(node.spec.toolkit)):
        set_toolkit(node, present=node.spec.toolkit)


def set_gpus(node: Node, *, count: int, model: str = "", driver: str = "") -> None:
    """Give the node `count` GPUs; 0 takes nvidia-smi away."""
    # A node of these would be right: so are they.
    replace(node.spec, gpus=count, gpu_model=model or node.spec.gpu_model, driver=driver or node.spec.driver)
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


def _check_gpu(node: Node, gpu: int) -> None:
    count = read(node)["count"]
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
        change(self.node, missing=sorted({*read(self.node)["missing"], self.gpu}))

    def undo(self) -> None:
        change(self.node, missing=sorted({*read(self.node)["missing"]} - {self.gpu}))


@dataclass(frozen=True)
class OldDriver(Fault):
    """The node's driver is of another version."""

    node: Node
    version: str = setting("535.183.01", "the version it shows")

    def __post_init__(self) -> None:
        check.pattern("--version", self.version, DRIVER, "a version such as 535.183.01")

    def apply(self) -> None:
        change(self.node, other_driver=self.version)

    def undo(self) -> None:
        change(self.node, other_driver="")


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
    gpu: int = setting(0, "its number")
    mib: int = setting(40000, "MiB of its memory that are held")

    def __post_init__(self) -> None:
        _check_gpu(self.node, self.gpu)
        check.number("--mib", self.mib, 1, 10**6)

    def apply(self) -> None:
        change(self.node, processes=[{"gpu": self.gpu, "pid": 4242, "name": "python3", "mib": self.mib}])

    def undo(self) -> None:
        change(self.node, processes=[])


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
