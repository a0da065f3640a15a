"""Reads the Ansible inventory, the only list of machines, through Ansible's own machinery."""

import io
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launcher.base.errors import RingmasterError
from launcher.inventory.settings import settings_problem
from launcher.inventory.ssh_options import SshOptions, from_variables

_JOB_DIR, _DATA_DIR = "/var/lib/ringmaster/jobs", "/var/lib/ringmaster/data"

GROUP = "nodes"
_PREFIX = "ringmaster_"
_NAME = re.compile(r"[^\W_][\w.-]*")  # it becomes a file's name: logs/<node>.log
# Ansible's defaults let broken entries pass with a warning; a cluster that is half described must not start.
STRICT = {
    "ANSIBLE_INVENTORY_UNPARSED_FAILED": "1",
    "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1",
    "ANSIBLE_INVENTORY_UNPARSED_WARNING": "0",
    "ANSIBLE_DUPLICATE_YAML_DICT_KEY": "error",
    "ANSIBLE_LOCALHOST_WARNING": "0",
    # Ours, in a folder that is an inventory.
    "ANSIBLE_INVENTORY_IGNORE_REGEX": r"^(known_hosts|image\.yml|.*\.ssh_config)$",
}


@dataclass(frozen=True, kw_only=True)
class Host:
    """One machine of the inventory: its name, the address Ansible reaches it by, and its settings."""

    name: str
    address: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The `ringmaster_…` variables, without the prefix."""
    ssh: SshOptions = field(default_factory=SshOptions)

    @property
    def runtime(self) -> str:
        return str(self.settings.get("runtime", "docker"))


def read(path: Path, *, limit: str = "") -> tuple[Host, ...]:
    """Return the hosts of group `nodes` in inventory order, narrowed by an Ansible pattern `limit`.

    Raises:
        RingmasterError: the file is missing or not parsable, the group is missing or empty, a name stands there
            twice, two names share an address that is not this machine's, or `limit` names an unknown host.
    """
    if not path.exists():
        raise RingmasterError(
            f"{path}: no such inventory; copy inventory/hosts.example.yml there, or set INVENTORY=<file>"
        )
    _refuse_repeated_names(path)
    hosts = _hosts(path, limit)
    if not hosts and limit:
        raise RingmasterError(f"{path}: LIMIT={limit} leaves no host of group '{GROUP}'")
    if not hosts:
        raise RingmasterError(f"{path}: group '{GROUP}' has no hosts; add at least one under '{GROUP}: hosts:'")
    return hosts


def _hosts(path: Path, limit: str) -> tuple[Host, ...]:
    with _strict_ansible() as said:
        # Ansible takes 0.3 s to import: only who reads an inventory pays.
        from ansible.errors import AnsibleError
        from ansible.inventory.manager import InventoryManager, split_host_pattern
        from ansible.parsing.dataloader import DataLoader
        from ansible.template import Templar
        from ansible.vars.manager import VariableManager

        loader = DataLoader()
        said.seek(0)
        said.truncate()  # what importing it says is about this machine, not about the inventory
        try:
            inventory = InventoryManager(loader=loader, sources=[str(path)])
            _refuse_warnings(path, said.getvalue())
            if GROUP not in inventory.groups:
                raise RingmasterError(f"{path}: no group '{GROUP}' in it; list your machines under '{GROUP}: hosts:'")
            _refuse_unknown_hosts(path, inventory, limit, split_host_pattern(limit))
            variables = VariableManager(loader=loader, inventory=inventory)
            hosts = tuple(
                _host(path, str(host.name), variables.get_vars(host=host, include_hostvars=False), Templar, loader)
                for host in inventory.list_hosts(GROUP)
            )
            _refuse_shared_addresses(path, hosts)  # those beyond the limit count too
            inventory.subset(limit or None)
            chosen = {str(host.name) for host in inventory.list_hosts(GROUP)}
            return tuple(host for host in hosts if host.name in chosen)
        except AnsibleError as error:
            _refuse_warnings(path, said.getvalue())
            raise RingmasterError(f"{path}: {_one_line(str(error))}") from error


@contextmanager
def _strict_ansible() -> Iterator[io.StringIO]:
    """Ansible's settings (it reads them when imported) and what it prints, kept from the user's script and screen."""
    before = {name: os.environ.get(name) for name in STRICT}
    errors = sys.stdout.errors
    os.environ.update(STRICT)
    try:
        with redirect_stderr(io.StringIO()) as said:
            yield said
    finally:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors=errors)  # Ansible sets its own, which puts a "?" for what is not UTF-8
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _refuse_warnings(path: Path, said: str) -> None:
    """Make one line of the pages Ansible prints about a file it could not read, or only in part."""
    if "[WARNING]" not in said:
        return
    cause = re.search(r"YAML parsing failed: (.+)", said) or re.search(r"\[WARNING\]: (.+)", said)
    place = re.search(r"^Origin: .*?(:\d+):\d+$", said, re.MULTILINE)
    what = cause[1] if cause else _one_line(said)
    raise RingmasterError(f"{path}{place[1] if place else ''}: {what.rstrip('.')}. Mend the inventory and try again.")


def _host(path: Path, name: str, variables: dict[str, Any], templar: Any, loader: Any) -> Host:
    render = templar(loader=loader, variables=variables).template
    wanted = {key: value for key, value in variables.items() if key.startswith(_PREFIX)}
    settings = {key.removeprefix(_PREFIX): _plain(render(value)) for key, value in wanted.items()}
    if not _NAME.fullmatch(name):
        raise RingmasterError(
            f"{path}: {name!r} can't be a node's name: letters, digits and . _ -, a letter or digit first"
        )
    problem = settings_problem(settings)
    if problem:
        raise RingmasterError(f"{path}: {name}: {problem}")
    try:
        ssh = from_variables(variables, render)
    except ValueError as error:
        raise RingmasterError(f"{path}: {name}: {error}") from error
    address = str(render(variables.get("ansible_host", name)))
    return Host(name=name, address=address, settings=settings, ssh=ssh)


def _plain(value: Any) -> Any:
    """Strip Ansible's tagged types down to Python's own."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    return next((kind(value) for kind in (int, float, str) if isinstance(value, kind)), str(value))


def _refuse_unknown_hosts(path: Path, inventory: Any, limit: str, patterns: list[str]) -> None:
    known = ", ".join(str(host.name) for host in inventory.list_hosts(GROUP))
    if limit and not any(pattern.strip() for pattern in patterns):
        raise RingmasterError(f"{path}: LIMIT={limit!r} names no host; known: {known}")
    for pattern in patterns:
        if not inventory.list_hosts(pattern.lstrip("!&")):
            raise RingmasterError(f"{path}: LIMIT names '{pattern}', which is not there; known: {known}")


def _refuse_repeated_names(path: Path) -> None:
    """Find one name twice in an INI inventory's group, which Ansible merges in silence (in YAML it is an error)."""
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
        raise RingmasterError(f"{path}: '{repeated[0]}' stands twice in group '{GROUP}'; give each node its own name")


def _refuse_shared_addresses(path: Path, hosts: tuple[Host, ...]) -> None:
    """One machine under two names would get two ranks 0; only this machine may stand for several nodes."""
    first: dict[str, str] = {}
    for host in hosts:
        if host.runtime == "process":
            continue
        other = first.setdefault(host.address, host.name)
        if other != host.name:
            raise RingmasterError(
                f"{path}: '{other}' and '{host.name}' are both {host.address}; one machine is one node: remove one"
            )


def _one_line(text: str) -> str:
    return " ".join(text.split())


def job_dir(host: Host) -> str:
    """The folder of all jobs on a node."""
    return str(host.settings.get("job_dir") or _JOB_DIR)


def _folders(host: Host) -> tuple[str, str]:
    return job_dir(host), str(host.settings.get("data_dir") or _DATA_DIR)
