"""How much room an image needs where some of its layers are already. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_SPARE = 1.1


def layers_of(manifest: dict[str, Any], chain: Sequence[str]) -> list[dict[str, Any]]:
    """Return `layer` (uncompressed digest) and `bytes` (compressed) of each, lowest first; [] where that is unknown."""
    parts = manifest.get("layers") or []
    if len(parts) != len(chain):
        return []
    return [{"layer": layer, "bytes": int(part["size"])} for layer, part in zip(chain, parts)]


def room_needed(layers: Sequence[dict[str, Any]], size: int, here: Sequence[Sequence[str]]) -> int:
    """Return the bytes that fetching takes at its height: the missing layers, compressed and unpacked.

    `size` is the whole image's, unpacked; `here` are the layers of the images that are here. A layer counts as here
    only with all those below it, as that is how engines share them.
    """
    chain = [one["layer"] for one in layers]
    shared = max((_common(chain, other) for other in here), default=0)
    missing = sum(one["bytes"] for one in layers[shared:])
    total = sum(one["bytes"] for one in layers) or 1
    return int((missing + size * missing / total) * _SPARE)


def _common(chain: Sequence[str], other: Sequence[str]) -> int:
    """Return how many layers both begin with."""
    same = [one == two for one, two in zip(chain, other)]
    return same.index(False) if False in same else len(same)
