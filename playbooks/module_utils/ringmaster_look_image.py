"""Whether the training image is on this node: a part of the probe."""

from __future__ import annotations

import os
from typing import Any

from ansible.module_utils.ringmaster_docker import process
from ansible.module_utils.ringmaster_image_engine import Engine
from ansible.module_utils.ringmaster_image_names import UNIT, describe, find_image

_SECONDS = 5


def look_image(reference: str) -> dict[str, Any] | None:
    """Return `reference`, `id`, `digests`, `size_mb` of the image; None where it (or the engine) is not there.

    `serving` says whether the registry of a delivery runs here; one that nobody stopped is stopped by the next run.
    """
    if not reference or process() is None:  # a question would start an engine that is stopped
        return None
    try:
        found = find_image(Engine(timeout=_SECONDS), reference)
    except (OSError, ValueError):
        return None
    if found is None:
        return None
    return {**describe(reference, found), "serving": os.path.exists(f"/run/systemd/transient/{UNIT}.service")}
