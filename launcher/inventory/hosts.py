"""Read the hosts of an Ansible inventory, the only list of machines, and refuse what can't be right."""

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launcher.base.errors import RingmasterError
from launcher.inventory.ansible_reader import AnsibleInventory, parsed
from launcher.inventory.settings import settings_problem
from launcher.inventory.ssh_options import SshOptions, from_variables
from launcher.inventory.vault import VaultPasswords

_JOB_DIR, _DATA_DIR = "/var/lib/ringmaster/jobs", "/var/lib/ringmaster/data"

GROUP = "nodes"
_PREFIX = "ringmaster_"
_NAME = re.compile(r"[^\W_][\w.-]*")  # it becomes a file's name: logs/<node>.log


def beside(inventory: Path, name: str) -> Path:
    """Return the path of the file `name` beside an inventory, a file or a folder (Ansible's `inventory_dir`)."""
    path = Path(os.path.abspath(inventory))  # noqa: PTH100  Ansible doesn't follow links here either
    return (path if path.is_dir() else path.parent) / name


@dataclass(frozen=True, kw_only=True)
class Host:
    """One machine of the inventory: its name, the address that Ansible connects to, and its settings."""

    name: str
    address: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The `ringmaster_…` variables, without the prefix."""
    ssh: SshOptions = field(default_factory=SshOptions)

    @property
    def runtime(self) -> str:
        """How this node runs its part of a job."""
        return str(self.settings.get("runtime", "docker"))


def read(path: Path, *, limit: str = "", passwords: VaultPasswords | None = None) -> tuple[Host, ...]:
    """Return the hosts of group `nodes` in inventory order, narrowed by an Ansible pattern `limit`.

    Args:
        passwords: for what is encrypted with Ansible Vault.

    Raises:
        RingmasterError: the file is missing or can't be parsed or decrypted, the group is missing or empty, it has a
            name twice, two names share an address that is not this machine's, a variable can't be right, or `limit`
            names an unknown host.
    """
    if not path.exists():
        raise RingmasterError(
            f"{path}: no such inventory; copy inventory/hosts.example.yml there, or set INVENTORY=<file>"
        )
    _refuse_repeated_names(path)
    hosts = _hosts(path, limit, passwords or VaultPasswords())
    if not hosts and limit:
        raise RingmasterError(f"{path}: LIMIT={limit} leaves no host of group '{GROUP}'")
    if not hosts:
        raise RingmasterError(f"{path}: group '{GROUP}' has no hosts; add at least one under '{GROUP}: hosts:'")
    return hosts


def _hosts(path: Path, limit: str, passwords: VaultPasswords) -> tuple[Host, ...]:
    with parsed(path, passwords) as inventory:
        if not inventory.has_group(GROUP):
            raise RingmasterError(f"{path}: no group '{GROUP}' in it; list your machines under '{GROUP}: hosts:'")
        _refuse_unknown_hosts(path, inventory, limit)
        hosts = tuple(_host(path, name, *inventory.variables(name)) for name in inventory.names(GROUP))
        _refuse_shared_addresses(path, hosts)  # also of hosts outside the limit
        chosen = set(inventory.names(GROUP, limit=limit))
        return tuple(host for host in hosts if host.name in chosen)


def _host(
    path: Path,
    name: str,
    variables: Mapping[str, Any],
    render: Callable[[Any], Any],
    unlock: Callable[[Any], Any],
) -> Host:
    ours = {key: value for key, value in variables.items() if key.startswith(_PREFIX)}
    settings = {key.removeprefix(_PREFIX): _plain(render(value)) for key, value in ours.items()}
    if not _NAME.fullmatch(name):
        raise RingmasterError(
            f"{path}: {name!r} can't be a node's name: use letters, digits and . _ -, with a letter or digit first"
        )
    problem = settings_problem(settings)
    if problem:
        raise RingmasterError(f"{path}: {name}: {problem}")
    try:
        ssh = from_variables(variables, render, unlock)
    except ValueError as error:
        raise RingmasterError(f"{path}: {name}: {error}") from error
    address = str(render(variables.get("ansible_host", name)))
    return Host(name=name, address=address, settings=settings, ssh=ssh)


def _plain(value: Any) -> Any:
    """Return the value in Python's own types instead of Ansible's tagged ones."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    return next((kind(value) for kind in (int, float, str) if isinstance(value, kind)), str(value))


def _refuse_unknown_hosts(path: Path, inventory: AnsibleInventory, limit: str) -> None:
    patterns = inventory.split(limit)
    known = ", ".join(inventory.names(GROUP))
    if limit and not any(pattern.strip() for pattern in patterns):
        raise RingmasterError(f"{path}: LIMIT={limit!r} names no host; known: {known}")
    for pattern in patterns:
        if not inventory.names(pattern.lstrip("!&")):
            raise RingmasterError(f"{path}: LIMIT names '{pattern}', which is not there; known: {known}")


def _refuse_repeated_names(path: Path) -> None:
    """Refuse a name that an INI inventory's group has twice: Ansible merges the two in silence (YAML's are errors)."""
    if path.is_dir() or path.suffix in {".yml", ".yaml", ".json"} or os.access(path, os.X_OK):
        return
    section, names = "", []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split("#")[0].split()
        if words and words[0].startswith("["):
            section = words[0].strip("[]")
        elif words and section == GROUP:
            names.append(words[0])
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise RingmasterError(f"{path}: group '{GROUP}' has '{repeated[0]}' twice; give each node its own name")


def _refuse_shared_addresses(path: Path, hosts: tuple[Host, ...]) -> None:
    """Refuse one machine under two names, which would get two ranks 0; only this machine may be several nodes."""
    first: dict[str, str] = {}
    for host in hosts:
        if host.runtime == "process":
            continue
        other = first.setdefault(host.address, host.name)
        if other != host.name:
            raise RingmasterError(
                f"{path}: '{other}' and '{host.name}' are both {host.address}; one machine is one node: remove one"
            )


def job_dir(host: Host) -> str:
    """Return the folder of all jobs on a node."""
    return str(host.settings.get("job_dir") or _JOB_DIR)


def node_folders(host: Host) -> tuple[str, str]:
    """Return the folder of all jobs on a node, and its folder of data sets."""
    return job_dir(host), str(host.settings.get("data_dir") or _DATA_DIR)
