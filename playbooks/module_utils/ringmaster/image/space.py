"""Computes the room that an image needs on a node that has some of its layers, and compares it with what is free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_SPARE = 1.1


def layers_of(manifest: dict[str, Any], chain: Sequence[str]) -> list[dict[str, Any]]:
    """Return `layer` (uncompressed digest), `blob` (the relay's name for it) and `bytes` (compressed) of each layer.

    The lowest is first; [] if they are unknown.
    """
    parts = manifest.get("layers") or []
    if len(parts) != len(chain):
        return []
    return [
        {"layer": layer, "blob": part["digest"].partition(":")[2], "bytes": int(part["size"])}
        for layer, part in zip(chain, parts)
    ]


def layers_missing(layers: Sequence[dict[str, Any]], here: Sequence[Sequence[str]]) -> Sequence[dict[str, Any]]:
    """Return the layers that a node lacks.

    `here` are the layers of the images on this node. A layer counts as present only with all those below it, because
    engines share them only so.
    """
    chain = [one["layer"] for one in layers]
    shared = max((_common(chain, other) for other in here), default=0)
    return layers[shared:]


def bytes_missing(layers: Sequence[dict[str, Any]], here: Sequence[Sequence[str]]) -> int:
    """Return the bytes of the layers, compressed, that a node lacks."""
    return sum(one["bytes"] for one in layers_missing(layers, here))


def room_needed(layers: Sequence[dict[str, Any]], size: int, here: Sequence[Sequence[str]]) -> tuple[int, int]:
    """Return the bytes that fetching takes at its peak: in the relay's folder, and in the engine's.

    These are the missing layers: the relay's copy is compressed, the engine has them compressed and unpacked. `size` is
    the whole image's, unpacked.
    """
    missing, total = bytes_missing(layers, here), sum(one["bytes"] for one in layers) or 1
    return int(missing * _SPARE), int((missing + size * missing / total) * _SPARE)


@dataclass(frozen=True)
class Place:
    """A folder that something is written to."""

    folder: str
    device: int
    """Its file system, as `st_dev` says it."""
    free: int
    needed: int
    """Both in bytes."""


def short_of_room(places: Sequence[Place]) -> str:
    """Return which folders have too little room, or nothing. Folders of one file system share what is free there."""
    for device in dict.fromkeys(one.device for one in places):
        shared = [one for one in places if one.device == device and one.needed]
        needed = sum(one.needed for one in shared)
        if shared and shared[0].free < needed:
            folders = " and ".join(one.folder for one in shared)
            return f"{needed / 1e9:.1f} GB in {folders}, {shared[0].free / 1e9:.1f} are free"
    return ""


def _common(chain: Sequence[str], other: Sequence[str]) -> int:
    """Return how many layers both have in common, from the lowest on."""
    same = [one == two for one, two in zip(chain, other)]
    return same.index(False) if False in same else len(same)
