"""The folders of jobs and data on this node: their mode and owner, and the results in them that nobody has fetched."""

from __future__ import annotations

import os
from typing import Any

from ansible.module_utils.ringmaster.core.disk import read

# The manifest's kind: a folder that reset removes with its content, if we made it.
KIND = "store"
# This file in a job's folder says that its results were fetched; the other, that some were too large for that.
_COLLECTED, _LEFT = "collected", "left"


def attributes(path: str) -> dict[str, int] | None:
    """Return a folder's mode, uid and gid; None without a folder."""
    if not os.path.isdir(path):
        return None
    status = os.stat(path)
    return {"mode": status.st_mode & 0o7777, "uid": status.st_uid, "gid": status.st_gid}


def removable(entry: dict[str, Any]) -> bool:
    """Return whether reset removes it: we made it, and nobody has put a link in its place since."""
    return entry["before"] is None and os.path.isdir(entry["name"]) and not os.path.islink(entry["name"])


def uncollected(entry: dict[str, Any]) -> list[str]:
    """Return the folders of jobs that would be lost with this one: those whose results are not all fetched."""
    if not entry["jobs"] or not removable(entry):
        return []
    with os.scandir(entry["name"]) as entries:
        jobs = [one.path for one in entries if one.is_dir(follow_symlinks=False) and not one.name.startswith(".")]
    return sorted(job for job in jobs if not _has(job, _COLLECTED) or _has(job, _LEFT))


def _has(job: str, name: str) -> bool:
    return os.path.lexists(os.path.join(job, name))


def mounted_in(folder: str) -> list[str]:
    """Return the mounts at a folder or below it: disks of others, which we must not empty."""
    lines = (read("/proc/self/mountinfo") or "").splitlines()
    return [place for place in (line.split()[4] for line in lines) if f"{place}/".startswith(f"{folder}/")]
