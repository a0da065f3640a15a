"""Removes images of earlier deliveries, which would fill the disk; the one before the current image stays."""

from __future__ import annotations

from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.image.engine import Engine, InUseError
from ansible.module_utils.ringmaster.image.names import ROLE

_KEPT = 2


def forget_old(manifest: Manifest, engine: Engine, current: str) -> None:
    """Remove the images that we delivered here, except the last two, unless a container uses them.

    `current` is the ID of the image that is wanted now; its names never count as old.
    """
    names: dict[str, list[str]] = {}
    for entry in manifest.of_role(ROLE):
        if entry["kind"] == "image" and not entry.get("only_name"):
            image = engine.inspect(entry["name"])
            names.setdefault(image["Id"] if image else "", []).append(entry["name"])
    names.pop("", None)
    names.pop(current, None)
    for old in list(names.values())[_KEPT - 1 :]:
        for name in old:
            _forget(manifest, engine, name)


def _forget(manifest: Manifest, engine: Engine, name: str) -> None:
    try:
        engine.untag(name)
    except InUseError:
        return
    entry = manifest.find(ROLE, "image", name)
    if entry is not None:
        manifest.remove(entry)
