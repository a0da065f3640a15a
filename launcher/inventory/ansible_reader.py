"""Opens an inventory with Ansible's own machinery, strictly; the one module that imports Ansible.

Ansible's programs read inventories with these classes, but Ansible promises nothing about them to others. Why they are
used all the same: docs/decisions/0031-how-inventories-are-read.md. A test compares them with `ansible-inventory`.
"""

import io
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from functools import partial
from pathlib import Path
from typing import Any

from launcher.base.errors import RingmasterError

# Ansible's defaults let broken entries pass with a warning; a cluster that is half described must not start.
STRICT = {
    "ANSIBLE_INVENTORY_UNPARSED_FAILED": "1",
    "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1",
    "ANSIBLE_INVENTORY_UNPARSED_WARNING": "0",
    "ANSIBLE_DUPLICATE_YAML_DICT_KEY": "error",
    "ANSIBLE_LOCALHOST_WARNING": "0",
    # Our own files, in a folder that is an inventory.
    "ANSIBLE_INVENTORY_IGNORE_REGEX": r"^(known_hosts|image\.yml|.*\.ssh_config)$",
}


class AnsibleInventory:
    """An inventory that Ansible has parsed; `parsed` makes it."""

    def __init__(
        self, inventory: Any, variables: Any, renderer: Callable[..., Any], split: Callable[[str], list[Any]]
    ) -> None:
        self._inventory = inventory
        self._variables = variables
        self._renderer = renderer
        self._split = split

    def has_group(self, name: str) -> bool:
        """Return whether the inventory defines a group, empty or not."""
        return name in self._inventory.groups

    def names(self, pattern: str, *, limit: str = "") -> list[str]:
        """Return the hosts that match Ansible's `pattern`, in inventory order, narrowed by Ansible's `limit`."""
        self._inventory.subset(limit or None)
        try:
            return [str(host.name) for host in self._inventory.list_hosts(pattern)]
        finally:
            self._inventory.subset(None)

    def split(self, limit: str) -> list[str]:
        """Return the patterns that Ansible's `limit` consists of."""
        return [str(pattern) for pattern in self._split(limit)]

    def variables(self, name: str) -> tuple[Mapping[str, Any], Callable[[Any], Any]]:
        """Return a host's variables as the inventory has them, and a function that resolves their templates."""
        host = self._inventory.get_host(name)
        variables = self._variables.get_vars(host=host, include_hostvars=False)
        return variables, self._renderer(variables=variables).template


@contextmanager
def parsed(path: Path) -> Iterator[AnsibleInventory]:
    """Parse an inventory; while it is open, what Ansible prints is kept off the screen.

    Raises:
        RingmasterError: Ansible can't read a part of it, or can't resolve a template.
    """
    with _strict_ansible() as stderr:
        # Importing Ansible takes 0.3 s: only commands that read an inventory pay for it.
        from ansible.errors import AnsibleError
        from ansible.inventory.manager import InventoryManager, split_host_pattern
        from ansible.parsing.dataloader import DataLoader
        from ansible.template import Templar
        from ansible.vars.manager import VariableManager

        stderr.seek(0)
        stderr.truncate()  # warnings of the imports are about this machine, not about the inventory
        loader = DataLoader()
        try:
            inventory = InventoryManager(loader=loader, sources=[str(path)])
            _refuse_warnings(path, stderr.getvalue())
            variables = VariableManager(loader=loader, inventory=inventory)
            yield AnsibleInventory(inventory, variables, partial(Templar, loader=loader), split_host_pattern)
        except AnsibleError as error:
            _refuse_warnings(path, stderr.getvalue())
            raise RingmasterError(f"{path}: {_one_line(str(error))}") from error


@contextmanager
def _strict_ansible() -> Iterator[io.StringIO]:
    """Set Ansible's strict settings, which it reads when imported, and collect what it prints.

    Afterwards everything is as before: neither reaches the user's script or screen.
    """
    before = {name: os.environ.get(name) for name in STRICT}
    errors = sys.stdout.errors
    os.environ.update(STRICT)
    try:
        with redirect_stderr(io.StringIO()) as stderr:
            yield stderr
    finally:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors=errors)  # Ansible sets its own, which puts a "?" for what is not UTF-8
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _refuse_warnings(path: Path, stderr: str) -> None:
    """Raise one line in place of the pages that Ansible prints about a file it can't read, or reads only in part."""
    if "[WARNING]" not in stderr:
        return
    cause = re.search(r"YAML parsing failed: (.+)", stderr) or re.search(r"\[WARNING\]: (.+)", stderr)
    place = re.search(r"^Origin: .*?(:\d+):\d+$", stderr, re.MULTILINE)
    what = cause[1] if cause else _one_line(stderr)
    raise RingmasterError(f"{path}{place[1] if place else ''}: {what.rstrip('.')}. Fix the inventory and try again.")


def _one_line(text: str) -> str:
    return " ".join(text.split())
