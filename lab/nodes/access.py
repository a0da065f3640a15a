"""How the operator reaches the nodes: the lab's own key, pinned host keys, ssh_config, inventory."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from lab.base.place import Place
from lab.image.recipe import USER
from launcher.base import atomic_file


@dataclass(frozen=True, kw_only=True)
class Door:
    """Everything that is needed to reach one node."""

    name: str
    address: str
    port: int
    host_key: str
    """`ssh-ed25519 AAAA…`, read inside the node, not over the network."""
    jump: str = ""
    """The node through which alone it is reached; empty: directly."""


def provide_key(place: Place) -> str:
    """Return the public half of the operator's key for this lab; make the key now if there is none."""
    public = place.key.with_suffix(".pub")
    if not (place.key.exists() and public.exists()):
        place.state.mkdir(parents=True, exist_ok=True)
        place.key.unlink(missing_ok=True)
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "operator of the lab", "-f", str(place.key)],
            check=True,
            timeout=30,
        )
    return public.read_text()


def write(place: Place, doors: Sequence[Door]) -> None:
    """Write the three files, each in one step, so that nobody reads half of one."""
    atomic_file.write(place.known_hosts, known_hosts(doors))
    atomic_file.write(place.ssh_config, ssh_config(place, doors))
    atomic_file.write(place.inventory, inventory(place, doors))


def remove(place: Place) -> None:
    """Remove the inventory and the ssh_config; the other files go with the lab's folder."""
    for path in (place.inventory, place.ssh_config):
        path.unlink(missing_ok=True)


def known_hosts(doors: Sequence[Door]) -> str:
    """Return the nodes' host keys in the format of known_hosts."""
    lines = []
    for door in doors:
        where = door.address if door.port == 22 else f"[{door.address}]:{door.port}"
        alias = door.name if door.port == 22 else f"[{door.name}]:{door.port}"
        lines.append(f"{alias},{where} {door.host_key}\n")
    return "".join(lines)


def ssh_config(place: Place, doors: Sequence[Door]) -> str:
    """Return the configuration with which ssh reaches the nodes by name and by address."""
    hosts = "".join(
        f"Host {door.name} {door.address}\n    HostName {door.address}\n    Port {door.port}\n"
        + (f"    ProxyJump {door.jump}\n\n" if door.jump else "\n")
        for door in doors
    )
    return f"""\
# Written by `make lab`: how to reach the rehearsal cluster's nodes.  ssh -F inventory/{place.ssh_config.name} node1
{hosts}Host *
    User {USER}
    IdentityFile "{place.key}"
    IdentitiesOnly yes
    UserKnownHostsFile "{place.known_hosts}"
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    ConnectTimeout 10
"""


def inventory(place: Place, doors: Sequence[Door]) -> str:
    """Return Ansible's inventory of the nodes."""
    hosts = "".join(
        f"    {door.name}:\n      ansible_host: {door.address}\n"
        + (f"      ansible_port: {door.port}\n" if door.port != 22 else "")
        for door in doors
    )
    return f"""\
---
# Written by `make lab`: the rehearsal cluster on this machine; `make lab-down` removes it.
nodes:
  hosts:
{hosts}  vars:
    ansible_user: {USER}
    ansible_ssh_common_args: '-F "{{{{ inventory_dir }}}}/{place.ssh_config.name}"'
    ringmaster_backend: gloo  # the GPUs, where there are any, are stand-ins
"""
