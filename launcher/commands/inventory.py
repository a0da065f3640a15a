"""The inventory as the verbs open it."""

import os
from collections.abc import Sequence
from pathlib import Path

from launcher.base.errors import RingmasterError
from launcher.base.paths import ROOT
from launcher.inventory.hosts import Host


def pinned_file(inventory: Path) -> Path:
    """Where an inventory's host keys are pinned: beside it (what Ansible calls `inventory_dir`)."""
    path = Path(os.path.abspath(inventory))  # noqa: PTH100  Ansible doesn't follow links here either
    return (path if path.is_dir() else path.parent) / "known_hosts"


def refuse_processes(path: Path, hosts: Sequence[Host]) -> None:
    """Nodes that are processes of this machine need no preparing, and this machine must not get it."""
    processes = [host.name for host in hosts if host.runtime == "process"]
    if processes:
        raise RingmasterError(
            f"{path}: {', '.join(processes)} is this machine itself (ringmaster_runtime: process): nothing is "
            "prepared here, and jobs end with make train; for a cluster, copy inventory/hosts.example.yml to "
            "inventory/hosts.yml and list your machines"
        )


def inventory_path(given: str) -> Path:
    """The inventory the user named, else their own, else this machine as a cluster."""
    if given:
        return Path(given)
    hosts = ROOT / "inventory" / "hosts.yml"
    return hosts if hosts.exists() else ROOT / "inventory" / "local.yml"
