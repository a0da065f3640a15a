"""Takes back installations and holds: kinds packages, hold. Each can be repeated after an interruption."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ansible.module_utils.ringmaster.packages.apt import Apt, archives
from ansible.module_utils.ringmaster.packages.dpkg import packages

# Seconds to wait for others that hold apt's locks.
_PATIENCE = 180
# Debian's package of the engine leaves this script behind when it is removed, and runs it when it is purged. The script
# deletes everything in the folder, whoever uses it by then. Kind `engine` knows what may go, and removes that.
_NUKED = "docker.io"
_NUKE = "/var/lib/docker/nuke-graph-directory.sh"


def undo_packages(entry: dict[str, Any]) -> None:
    """Purge what we installed and what came along, unless the user, or a package of the user's, needs it by now."""
    apt = Apt(_PATIENCE)
    apt.finish_interrupted()
    have, manual = packages(), apt.manual()
    for name in (
        one for one in [*entry["asked"], *entry["came"]] if one in have and have[one].state == "half-installed"
    ):
        apt.unpack(name)
    # A package that came along and is marked manual has been asked for since.
    ours = [*entry["asked"], *(name for name in entry["came"] if name not in manual)]
    there = {name for name in ours if name in have and have[name].state != "not-installed"}
    going = removable(there, apt.removal)
    # A package that stays because another one needs it will go with that one.
    apt.mark("auto", sorted(there - going))
    apt.remove(sorted(going), purge=False)
    # Settings of a package that was removed before our first run stay as they were.
    purged = going - set(entry["left"])
    if _NUKED in purged and os.path.exists(_NUKE):
        os.unlink(_NUKE)
    apt.remove(sorted(purged), purge=True)
    for path in (path for name in [*entry["asked"], *entry["came"]] for path in archives(name)):
        os.unlink(path)


def removable(names: set[str], removal: Callable[[list[str]], set[str]]) -> set[str]:
    """Return the names that can go without anything else going; `removal` returns all that would go with some."""
    left = set(names)
    while left and removal(sorted(left)) - left:
        needed = {name for name in left if removal([name]) - left}
        if not needed:
            return set()
        left -= needed
    return left


def undo_hold(entry: dict[str, Any]) -> None:
    """Release a package that we held."""
    name, have = entry["name"], packages()
    if name in have and have[name].wanted == "hold":
        Apt(_PATIENCE).mark("unhold", [name])
