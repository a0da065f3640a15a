"""A node's GPUs as nvidia-smi shows them, and who uses them. Read-only."""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
from typing import Any

_SECONDS = 20
_GPUS = ("index", "name", "memory.total", "driver_version")
_PROCESSES = ("pid", "process_name", "used_memory")


def look_gpus() -> dict[str, Any]:
    """Return `gpus`, `gpu_processes` and, where nvidia-smi fails, `gpu_problem`.

    A machine has GPUs also where no driver shows them (`unclaimed`: NVIDIA devices on the bus).
    """
    found: dict[str, Any] = {
        "gpus": [],
        "gpu_processes": [],
        "gpu_problem": None,
        "unclaimed": 0,
        "nouveau": os.path.isdir("/sys/module/nouveau"),
    }
    program = shutil.which("nvidia-smi")
    if program is None:
        return {**found, "unclaimed": _on_the_bus()}
    try:
        return {
            **found,
            "gpus": gpus(_ask(program, "--query-gpu", _GPUS)),
            "gpu_processes": processes(_ask(program, "--query-compute-apps", _PROCESSES)),
        }
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stdout", None) or str(error)
        return {**found, "gpu_problem": " ".join(str(said).split()) or "nvidia-smi fails", "unclaimed": _on_the_bus()}


def gpus(text: str) -> list[dict[str, Any]]:
    """Return each GPU: index, model, memory in MiB, driver."""
    return [
        {"index": int(index), "model": model, "memory_mb": _number(memory), "driver": driver}
        for index, model, memory, driver in _rows(text, len(_GPUS))
    ]


def processes(text: str) -> list[dict[str, Any]]:
    """Return each process that holds a GPU: pid, name, memory in MiB."""
    return [
        {"pid": _number(pid), "name": os.path.basename(name), "memory_mb": _number(memory)}
        for pid, name, memory in _rows(text, len(_PROCESSES))
    ]


def _ask(program: str, what: str, fields: tuple[str, ...]) -> str:
    words = [program, f"{what}={','.join(fields)}", "--format=csv,noheader,nounits"]
    return subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=True).stdout


def _rows(text: str, columns: int) -> list[list[str]]:
    rows = csv.reader(io.StringIO(text), skipinitialspace=True)
    return [[field.strip() for field in row] for row in rows if len(row) == columns]


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


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
