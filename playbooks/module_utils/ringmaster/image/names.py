"""Names of images, and the record of the image that was delivered here. The one place for the port and the names."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from ansible.module_utils.ringmaster.core.disk import read, state_of, write
from ansible.module_utils.ringmaster.core.manifest import STATE_FOLDER, Manifest
from ansible.module_utils.ringmaster.image.engine import Engine

ROLE = "train_image"
PORT = 5870
"""The relay's, on each node's loopback; the keys of the SSH mesh may forward to it."""
REPOSITORY = f"127.0.0.1:{PORT}/ringmaster/train"
UNIT, PULL_UNIT, PUSH_UNIT = "ringmaster-registry", "ringmaster-pull", "ringmaster-push"
RECORD = STATE_FOLDER + "/image.json"
_TAGGED = re.compile(r"(?P<name>.*?)(?::[^:/@]+)?@(?P<digest>sha256:[0-9a-f]{64})")


def canonical(reference: str) -> str:
    """Return a reference by digest without its tag, if it has one: the digest alone counts."""
    parts = _TAGGED.fullmatch(reference)
    return f"{parts['name']}@{parts['digest']}" if parts else reference


def find_image(engine: Engine, reference: str) -> dict[str, Any] | None:
    """Return what the engine knows of the image that `reference` means on this node, or None.

    Where the engine doesn't know the reference, the image may have come from another node: the record has its ID here.
    """
    image = engine.inspect(canonical(reference))
    if image is not None:
        return image
    known = recorded()
    return engine.inspect(str(known["id"])) if known.get("reference") == reference else None


def recorded() -> dict[str, Any]:
    """Return the record: `reference` (as asked for), `id` (on this node), `name` (by digest); {} without a record."""
    try:
        content = json.loads(read(RECORD) or "{}")
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def record(manifest: Manifest, reference: str, image: str, name: str) -> None:
    """Record what `reference` means here, readable by all: the user who starts jobs is not root."""
    manifest.note(ROLE, "file", RECORD, before=state_of(RECORD))
    text = json.dumps({"reference": reference, "id": image, "name": name}, indent=1) + "\n"
    write(RECORD, text, mode=0o644, uid=0, gid=0)


def serving() -> bool:
    """Return whether the relay of a delivery runs on this node. It asks no program, as it is a part of the probe."""
    return os.path.exists(f"/run/systemd/transient/{UNIT}.service")


def describe(reference: str, image: dict[str, Any]) -> dict[str, Any]:
    """Return the fact about an image on this node, from the engine's answer."""
    return {
        "reference": reference,
        "id": image["Id"],
        "digests": image.get("RepoDigests") or [],
        "size_mb": image.get("Size", 0) // 1_000_000,
    }
