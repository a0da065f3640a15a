"""Deletes the engine's folders with its own mounts in them; the mounts of others are never emptied."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass

from ansible.module_utils.ringmaster.core.disk import read
from ansible.module_utils.ringmaster.core.program import finished

_MOUNTS = "/proc/self/mountinfo"


@dataclass(frozen=True)
class Mount:
    """A line of mountinfo."""

    identity: str
    parent: str
    device: str
    root: str
    """The folder of the device that is mounted."""
    place: str


def mounts(text: str) -> list[Mount]:
    """Return the lines of mountinfo."""
    lines = (line.split(" ") for line in text.splitlines())
    return [Mount(one[0], one[1], one[2], _plain(one[3]), _plain(one[4])) for one in lines]


def removable(path: str, mounted: list[Mount]) -> list[str]:
    """Return the places to unmount, the deepest first: all below the path, and the path where it is mounted on itself.

    The engine mounts its folder on itself, and leaves it so when it crashes. Another disk at the path is the user's.
    """
    by_identity = {one.identity: one for one in mounted}
    below = [one.place for one in mounted if one.place.startswith(path + "/")]
    here = [one.place for one in mounted if one.place == path and _on_itself(one, by_identity.get(one.parent))]
    return [*sorted(below, reverse=True), *here]


def delete(path: str) -> None:
    """Delete a file or a folder, but nothing where another disk has been mounted since."""
    unmount(path)
    if os.path.isdir(path) and not os.path.ismount(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path) and not os.path.ismount(path):
        os.unlink(path)


def clear(folder: str) -> None:
    """Delete everything in a folder."""
    unmount(folder)
    for name in os.listdir(folder):
        delete(os.path.join(folder, name))


def unmount(path: str) -> None:
    """Unmount the engine's mounts at and below a path.

    Raises:
        ValueError: it can't be done.
    """
    # Read anew each time: unmounting one place may take others along.
    while places := removable(path, mounts(read(_MOUNTS) or "")):
        done = finished(["umount", "--lazy", places[0]])
        if done.returncode:
            raise ValueError(f"{places[0]} can't be unmounted: {' '.join(done.stderr.split()) or done.returncode}")


def _on_itself(mount: Mount, parent: Mount | None) -> bool:
    if parent is None or mount.device != parent.device:
        return False
    return mount.root == os.path.normpath(os.path.join(parent.root, os.path.relpath(mount.place, parent.place)))


def _plain(path: str) -> str:
    """Return a path without mountinfo's escapes, such as \\040 for a space."""
    return re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape[1], 8)), path)
