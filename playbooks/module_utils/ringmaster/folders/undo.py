"""Takes back the folders of jobs and data: kind store. Can be repeated after an interruption."""

from __future__ import annotations

import os
import shutil
from typing import Any

from ansible.module_utils.ringmaster.core.disk import part_of
from ansible.module_utils.ringmaster.folders.job_folders import mounted_in, removable, uncollected


def undo_store(entry: dict[str, Any]) -> None:
    """Remove a folder of ours with its content; a folder from before us gets its owner and mode back.

    It is moved aside first: what a killed reset has half removed must not look like jobs that nobody has fetched.

    Raises:
        ValueError: something would be lost that is nowhere else.
    """
    folder, before = entry["name"], entry["before"]
    if before is not None:
        _give_back(folder, before)
        return
    aside = part_of(folder)
    if os.path.isdir(aside):
        shutil.rmtree(aside)
    if not removable(entry):
        return
    lost, mounted = uncollected(entry), mounted_in(folder)
    if lost:
        raise ValueError(f"results that nobody has fetched are in {', '.join(lost)}: fetch or remove them")
    if mounted:
        raise ValueError(f"{', '.join(mounted)} is a mount, which may hold more than ours: unmount it first")
    os.rename(folder, aside)
    shutil.rmtree(aside)


def _give_back(folder: str, before: dict[str, int]) -> None:
    if os.path.isdir(folder) and not os.path.islink(folder):
        os.chown(folder, before["uid"], before["gid"])
        os.chmod(folder, before["mode"])
