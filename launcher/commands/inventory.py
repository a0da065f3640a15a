"""The inventory as every verb opens it: its path, its nodes, and where their host keys are pinned."""

from dataclasses import dataclass
from pathlib import Path

from launcher.base.errors import RingmasterError
from launcher.base.paths import ROOT
from launcher.inventory.hosts import Host, beside, read


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """An inventory that was read."""

    path: Path
    hosts: tuple[Host, ...]
    """The nodes in the inventory's order, narrowed by LIMIT."""

    @property
    def pins(self) -> Path:
        """The file in which the nodes' host keys are pinned: beside the inventory."""
        return beside(self.path, "known_hosts")

    def everyone(self) -> tuple[Host, ...]:
        """Return all nodes of the inventory, also those that LIMIT leaves out."""
        return read(self.path)

    def refuse_processes(self) -> None:
        """Refuse nodes that are processes of this machine: they need no preparing, and this machine must not get it.

        Raises:
            RingmasterError: a node's runtime is `process`.
        """
        processes = [host.name for host in self.hosts if host.runtime == "process"]
        if processes:
            raise RingmasterError(
                f"{self.path}: {', '.join(processes)} is this machine itself (ringmaster_runtime: process): nothing is "
                "prepared here, and jobs end with make train; for a cluster, copy inventory/hosts.example.yml to "
                "inventory/hosts.yml and list your machines"
            )


def open_inventory(name: str, *, limit: str = "") -> Inventory:
    """Read the inventory that the user named, else the user's own, else the one that is this machine as a cluster.

    Args:
        name: INVENTORY as the user typed it; empty is the default.
        limit: an Ansible pattern that narrows the nodes.

    Raises:
        RingmasterError: the inventory is missing or broken, or `limit` leaves no node.
    """
    path = inventory_path(name)
    return Inventory(path=path, hosts=read(path, limit=limit))


def open_cluster(name: str, *, limit: str = "") -> Inventory:
    """Open an inventory whose nodes are machines of their own, for a verb that prepares or asks machines.

    Raises:
        RingmasterError: as `open_inventory`, and where a node is a process of this machine.
    """
    inventory = open_inventory(name, limit=limit)
    inventory.refuse_processes()
    return inventory


def inventory_path(name: str) -> Path:
    """Return the path that `open_inventory` reads."""
    if name:
        return Path(name)
    hosts = ROOT / "inventory" / "hosts.yml"
    return hosts if hosts.exists() else ROOT / "inventory" / "local.yml"
