"""Finds whether the training image is on this node: a part of the probe."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.ringmaster.engine.socket import process
from ansible.module_utils.ringmaster.image.engine import Engine
from ansible.module_utils.ringmaster.image.names import describe, find_image, serving

_SECONDS = 5


def look_image(reference: str) -> dict[str, Any]:
    """Return `image` (`reference`, `id`, `digests`, `size_mb`; None without it or an engine) and `image_serving`.

    The latter says whether the registry of a delivery runs here, whichever image it delivers.
    """
    return {"image": _present(reference), "image_serving": serving()}


def _present(reference: str) -> dict[str, Any] | None:
    if not reference or process() is None:  # a question would start a stopped engine
        return None
    try:
        image = find_image(Engine(timeout=_SECONDS), reference)
    except (OSError, ValueError):
        return None
    return describe(reference, image) if image else None
