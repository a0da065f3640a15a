"""A node's GPUs as nvidia-smi shows them, and who uses them. Read-only."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from ansible.module_utils.ringmaster.core.probe import ask_gpu_processes, ask_gpus, program_path


def look_gpus() -> dict[str, Any]:
    """Return `gpus`, `gpu_processes` (each as the probe gives them) and, where nvidia-smi fails, `gpu_problem`.

    Some drivers list the GPUs but can't list the processes on them: `gpu_processes` is empty then. A machine has GPUs
    also where no driver shows them (`unclaimed`: NVIDIA devices on the bus).
    """
    facts: dict[str, Any] = {
        "gpus": [],
        "gpu_processes": [],
        "gpu_problem": None,
        "unclaimed": 0,
        "nouveau": os.path.isdir("/sys/module/nouveau"),
    }
    if program_path("nvidia-smi") is None:
        return {**facts, "unclaimed": _on_the_bus()}
    read_gpus, read_processes = ask_gpus(), ask_gpu_processes()  # both run at once
    try:
        facts["gpus"] = read_gpus()
    except (RuntimeError, ValueError) as error:
        facts |= {"gpu_problem": " ".join(str(error).split()), "unclaimed": _on_the_bus()}
    with suppress(RuntimeError, ValueError):
        facts["gpu_processes"] = read_processes()
    return facts


def _on_the_bus() -> int:
    """Count NVIDIA's display devices on the PCI bus (class 03)."""
    count = 0
    folder = "/sys/bus/pci/devices"
    for device in os.listdir(folder) if os.path.isdir(folder) else []:
        try:
            with open(f"{folder}/{device}/vendor") as vendor, open(f"{folder}/{device}/class") as kind:
                count += vendor.read().strip() == "0x10de" and kind.read().startswith("0x03")
        except OSError:
            continue
    return count
