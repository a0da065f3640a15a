"""Opens an inventory with Ansible's own machinery, strictly; only this module and `vault` import Ansible.

Ansible's programs read inventories with these classes, but Ansible promises nothing about them to others. Why they are
used all the same: docs/decisions/0031-how-inventories-are-read.md. A test compares them with `ansible-inventory`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from launcher.base.errors import RingmasterError
from launcher.inventory.strict_ansible import strict_ansible
from launcher.inventory.vault import Place, VaultPasswords, is_locked, loader_with, refuse_locked


class AnsibleInventory:
    """An inventory that Ansible has parsed; `parsed` makes it."""

    def __init__(
        self,
        inventory: Any,
        variables: Any,
        renderer: Callable[..., Any],
        split: Callable[[str], list[Any]],
        place: Place,
    ) -> None:
        self._place = place
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

    def variables(self, name: str) -> tuple[Mapping[str, Any], Callable[[Any], Any], Callable[[Any], Any]]:
        """Return a host's variables as the inventory has them, and two functions that resolve their templates.

        Both also decrypt; without a password for it, the first one raises, and the second one returns None. A value
        that nobody resolves stays encrypted.
        """
        from ansible.errors import AnsibleError

        host = self._inventory.get_host(name)
        variables = self._variables.get_vars(host=host, include_hostvars=False)
        template = self._renderer(variables=variables).template

        def render(value: Any) -> Any:
            variable = next((key for key, each in variables.items() if each is value), "a value")
            self._place.text = f"{name}: {variable}"
            rendered = template(value)
            self._place.text = ""
            return rendered

        def unlock(value: Any) -> Any:
            try:
                return render(value)
            except AnsibleError as error:
                if not is_locked(str(error)):
                    raise
                self._place.text = ""
                return None

        return variables, render, unlock


@contextmanager
def parsed(path: Path, passwords: VaultPasswords) -> Iterator[AnsibleInventory]:
    """Parse an inventory; while it is open, what Ansible prints is kept off the screen.

    Raises:
        RingmasterError: Ansible can't read or decrypt a part of it, or can't resolve a template.
    """
    with strict_ansible() as stderr:
        # Importing Ansible takes 0.3 s: only commands that read an inventory pay for it.
        from ansible.errors import AnsibleError
        from ansible.inventory.manager import InventoryManager, split_host_pattern
        from ansible.template import Templar
        from ansible.vars.manager import VariableManager

        stderr.seek(0)
        stderr.truncate()  # warnings of the imports are about this machine, not about the inventory
        place = Place()
        loader = loader_with(passwords, place)
        try:
            inventory = InventoryManager(loader=loader, sources=[str(path)])
            _refuse_warnings(path, stderr.getvalue())
            variables = VariableManager(loader=loader, inventory=inventory)
            yield AnsibleInventory(inventory, variables, partial(Templar, loader=loader), split_host_pattern, place)
        except AnsibleError as error:
            refuse_locked(_where(path, place), _one_line(f"{error} {stderr.getvalue()}"), passwords)
            _refuse_warnings(path, stderr.getvalue())
            raise RingmasterError(f"{path}: {_one_line(str(error))}") from error


def _where(path: Path, place: Place) -> str:
    return place.text if place.text.startswith("/") else f"{path}: {place.text}"


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
