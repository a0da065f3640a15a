"""The GPU stand-ins of a node: what its nvidia-smi shows. There are no GPUs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.nodes.node import Node
from lab.nodes.spec import NodeSpec
from launcher.base import atomic_file


def initial(spec: NodeSpec) -> dict[str, Any]:
    """Return what nvidia-smi shows on a new node."""
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
    """Let the node's nvidia-smi show `state` from now on; `folder` is what it shares with this machine."""
    atomic_file.write_json(folder / "gpus.json", state)


def change(node: Node, **changed: Any) -> None:
    """Change what the node's nvidia-smi shows from now on."""
    write(node.folder, {**read(node), **changed})


def read(node: Node) -> dict[str, Any]:
    """Return what it shows now; a setting that is newer than the node has its initial value."""
    return {**initial(node.spec), **json.loads((node.folder / "gpus.json").read_text())}


def misbehaviour(shown: dict[str, Any]) -> list[str]:
    """Return the faults among what nvidia-smi shows, in words for a list."""
    faults = [f"missing_gpu={number}" for number in shown["missing"]]
    faults += [f"shown_driver={shown['other_driver']}"] if shown["other_driver"] else []
    faults += [] if shown["driver_loaded"] else ["no_driver"]
    return faults + [f"busy_gpu={process['gpu']}" for process in shown["processes"]]


def reset(node: Node) -> None:
    """Show again what the node's spec says."""
    if read(node) != initial(node.spec):
        write(node.folder, initial(node.spec))
    settings = node.read_settings()
    if settings["GPU"] != str(int(node.spec.gpus > 0)):
        set_gpus(node, count=node.spec.gpus)
    if settings["TOOLKIT"] != str(int(node.spec.toolkit)):
        set_toolkit(node, present=node.spec.toolkit)


def set_gpus(node: Node, *, count: int, model: str = "", driver: str = "") -> None:
    """Give the node `count` GPUs; 0 removes nvidia-smi."""
    # A spec with these settings checks them.
    replace(node.spec, gpus=count, gpu_model=model or node.spec.gpu_model, driver=driver or node.spec.driver)
    change(node, count=count, model=model or node.spec.gpu_model, driver=driver or node.spec.driver)
    node.change_settings(GPU=int(count > 0))
    node.run("/usr/lib/ringmaster-lab/link-stand-ins")


def set_toolkit(node: Node, *, present: bool) -> None:
    """Place or remove the runtime hook; the engine looks for it once, when it starts."""
    node.change_settings(TOOLKIT=int(present))
    node.run("/usr/lib/ringmaster-lab/link-stand-ins")
    if node.succeeds("systemctl", "is-active", "--quiet", "docker"):
        node.run("systemctl", "reset-failed", "docker")
        node.run("systemctl", "restart", "docker")
