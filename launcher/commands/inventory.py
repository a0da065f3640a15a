"""The inventory as every verb opens it: its path, its nodes, and where their host keys are pinned."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from launcher.base import caller
from launcher.base.errors import RingmasterError
from launcher.base.paths import ROOT
from launcher.commands.asking import SSH, SUDO, VAULT, ask_password, parse_ask
from launcher.inventory.hosts import Host, beside, read
from launcher.inventory.passwords import Passwords
from launcher.inventory.vault import find_passwords


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """An inventory that was read."""

    path: Path
    hosts: tuple[Host, ...]
    """The nodes in the inventory's order, narrowed by LIMIT."""
    passwords: Passwords = field(default_factory=Passwords)
    """Found or asked for once, for all that the command does."""

    @property
    def pins(self) -> Path:
        """The file in which the nodes' host keys are pinned: beside the inventory."""
        return beside(self.path, "known_hosts")

    @property
    def is_this_machine(self) -> bool:
        """Whether all of its nodes are processes of this machine."""
        return all(host.runtime == "process" for host in self.hosts)

    def everyone(self) -> tuple[Host, ...]:
        """Return all nodes of the inventory, also those that LIMIT leaves out."""
        return _with_password(read(self.path, passwords=self.passwords.vault), self.passwords.ssh)

    def refuse_processes(self) -> None:
        """Refuse nodes that are processes of this machine: they need no preparing, and this machine must not get it.

        Raises:
            RingmasterError: a node's runtime is `process`.
        """
        processes = [host.name for host in self.hosts if host.runtime == "process"]
        if processes:
            raise RingmasterError(
                f"{self.path}: {', '.join(processes)} is this machine itself (ringmaster_runtime: process): nothing is "
                "prepared here; for a cluster, copy inventory/hosts.example.yml to "
                "inventory/hosts.yml and list your machines"
            )


def open_inventory(name: str, *, limit: str = "", ask: str = "", askable: Collection[str] = (SSH, VAULT)) -> Inventory:
    """Read the inventory that the user named, else the user's own, else the one that is this machine as a cluster.

    Args:
        name: INVENTORY as the user typed it; empty is the default.
        limit: an Ansible pattern that narrows the nodes.
        ask: ASK as the user typed it: which passwords are asked for.
        askable: those that the verb has a use for.

    Raises:
        RingmasterError: the inventory is missing or broken, `limit` leaves no node, or a password can't be asked for.
    """
    wanted = parse_ask(ask, askable)
    path = inventory_path(name)
    vault = find_passwords(partial(ask_password, VAULT), wanted=VAULT in wanted)
    hosts = read(path, limit=limit, passwords=vault)
    given = {kind: ask_password(kind) for kind in (SSH, SUDO) if kind in wanted}
    return Inventory(
        path=path,
        hosts=_with_password(hosts, given.get(SSH, "")),
        passwords=Passwords(vault=vault, **given),
    )


def _with_password(hosts: tuple[Host, ...], password: str) -> tuple[Host, ...]:
    """Return the hosts with a password that was typed for all; where the inventory has one, that counts."""
    if not password:
        return hosts
    return tuple(
        host if host.ssh.has_password else replace(host, ssh=replace(host.ssh, has_password=True, password=password))
        for host in hosts
    )


def open_cluster(name: str, *, limit: str = "", ask: str = "", askable: Collection[str] = (SSH, VAULT)) -> Inventory:
    """Open an inventory whose nodes are machines of their own, for a verb that prepares or asks machines.

    Raises:
        RingmasterError: as `open_inventory`, and where a node is a process of this machine.
    """
    inventory = open_inventory(name, limit=limit, ask=ask, askable=askable)
    inventory.refuse_processes()
    return inventory


def inventory_path(name: str) -> Path:
    """Return the path that `open_inventory` reads.

    Raises:
        RingmasterError: the user named one that isn't there.
    """
    if name:
        path = caller.path(name)
        if not path.exists() and (where := caller.looked_in(name)):
            raise RingmasterError(f"INVENTORY: {name}: no such inventory{where}; set INVENTORY=<file>")
        return path
    hosts = ROOT / "inventory" / "hosts.yml"
    return hosts if hosts.exists() else ROOT / "inventory" / "local.yml"
