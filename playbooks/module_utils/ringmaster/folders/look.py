"""Reads the folders of jobs and data: a part of the probe. Read-only."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.folders.job_folders import KIND, attributes, uncollected


def look_folders(paths: list[str], manifest: Manifest) -> dict[str, Any]:
    """Return `folders` (mode and owner by path, None where there is none) and `uncollected`.

    The latter are jobs' folders that a reset would lose: also those where an earlier setting had them.
    """
    stores = [one for one in manifest.entries if one["kind"] == KIND]
    return {
        "folders": {path: _shown(path) for path in paths},
        "uncollected": [path for one in stores for path in uncollected(one)],
    }


def _shown(path: str) -> dict[str, Any] | None:
    present = attributes(path)
    return {**present, "mode": f"{present['mode']:04o}"} if present else None
