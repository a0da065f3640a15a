"""Takes back what a delivery left: kinds image (a name in the engine) and registry (the relay's unit and folder)."""

from __future__ import annotations

import os
import shutil
from typing import Any

from ansible.module_utils.ringmaster.engine.socket import SOCKET
from ansible.module_utils.ringmaster.image.engine import Engine, InUseError
from ansible.module_utils.ringmaster.image.names import UNIT, serving
from ansible.module_utils.ringmaster.image.registry import stop
from ansible.module_utils.ringmaster.image.unit import PULL, stop_pushes


def undo_image(entry: dict[str, Any]) -> None:
    """Remove a name that we gave or pulled, and with its last name the image, unless a container uses it."""
    if entry.get("only_name"):
        return
    if not os.path.exists(SOCKET) and shutil.which("dockerd") is None:
        return  # the engine is gone, and its images with it
    try:
        Engine().untag(entry["name"])
    except InUseError:
        return


def undo_registry(entry: dict[str, Any]) -> None:
    """Stop the relay, and remove its folder with all blobs.

    Raises:
        OSError: it doesn't stop, or its folder can't be removed.
    """
    PULL.stop()
    stop_pushes()
    stop()
    if serving():
        raise OSError(f"the image's relay does not stop: `systemctl status {UNIT}` says why; then reset again")
    if os.path.lexists(entry["name"]):
        shutil.rmtree(entry["name"])
