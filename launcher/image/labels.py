"""What a training image says of itself: its labels."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TRAINER, CUDA, PACKAGES, REQUIREMENTS = (
    f"ringmaster.{what}" for what in ("trainer", "cuda", "packages", "requirements")
)


@dataclass(frozen=True, kw_only=True)
class ImageFacts:
    """An image on a node."""

    id: str
    digests: frozenset[str] = frozenset()
    architecture: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def cuda(self) -> str:
        return self.labels.get(CUDA, "")

    @property
    def packages(self) -> Mapping[str, str]:
        """Version of each package in it, by name; empty where its maker wrote none down."""
        try:
            found = json.loads(self.labels.get(PACKAGES) or "{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


def from_engine(attrs: Mapping[str, Any]) -> ImageFacts:
    """Read what the engine says of an image."""
    return ImageFacts(
        id=attrs["Id"],
        digests=frozenset(name.partition("@")[2] for name in attrs.get("RepoDigests") or ()),
        architecture=attrs.get("Architecture") or "",
        labels=attrs.get("Config", {}).get("Labels") or {},
    )
