"""The labels of a training image, which say what is in it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TRAINER = "ringmaster.trainer"
"""A hash of our own files in it."""
CUDA = "ringmaster.cuda"
"""The version of CUDA that its PyTorch was built for."""
PACKAGES = "ringmaster.packages"
"""The version of each Python package, as a JSON object."""
ARCHITECTURES = "ringmaster.architectures"
"""What its PyTorch has code for, such as `sm_80 sm_86 compute_90`."""
REQUIREMENTS = "ringmaster.requirements"
"""A hash of the user's requirements; empty where none were given."""

CHOSEN_TORCH = "ringmaster.torch"
"""The version that the user chose (TORCH), with whatever it needed at the time; empty where a lock of ours chose."""


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What an image has that tells nothing about itself: one that `make image` did not build."""

    python: str = ""
    """The path of its Python; empty: it has none."""
    site: str = ""
    """The folder of its Python's packages."""
    packages: Mapping[str, str] = field(default_factory=dict)
    torch: str = ""
    """The version of its torch; empty: it has none, and `problem` says why."""
    torchrun: bool = False
    cuda: str = ""
    architectures: str = ""
    """What its torch has code for, as in the label of that name."""
    problem: str = ""
    capabilities: str = ""
    """What of a GPU's driver it asks for."""


@dataclass(frozen=True, kw_only=True)
class ImageFacts:
    """An image on a node."""

    id: str
    digests: frozenset[str] = frozenset()
    """The digests under which registries know it."""
    architecture: str
    labels: Mapping[str, str] = field(default_factory=dict)
    contents: Contents | None = None
    """Of a foreign image, once somebody has looked."""
    expected: bool = False
    """Whether it is yet to be built or fetched: what isn't known of it then is no fault."""

    @property
    def foreign(self) -> bool:
        """Whether `make image` did not build it."""
        return not self.labels.get(TRAINER)

    @property
    def cuda(self) -> str:
        """The version of CUDA in it; empty where whoever built it didn't write it down."""
        return self.contents.cuda if self.contents else self.labels.get(CUDA, "")

    @property
    def architectures(self) -> tuple[str, ...]:
        """The GPU architectures that it has code for; empty where whoever built it didn't write them down."""
        written = self.contents.architectures if self.contents else self.labels.get(ARCHITECTURES, "")
        return tuple(written.split())

    @property
    def packages(self) -> Mapping[str, str]:
        """The version of each package in it, by name; empty where whoever built it didn't write them down."""
        if self.contents:
            return self.contents.packages
        try:
            versions = json.loads(self.labels.get(PACKAGES) or "{}")
        except ValueError:
            return {}
        return versions if isinstance(versions, dict) else {}


def from_engine(attrs: Mapping[str, Any]) -> ImageFacts:
    """Read an image's attributes as the engine gives them."""
    return ImageFacts(
        id=attrs["Id"],
        digests=frozenset(name.partition("@")[2] for name in attrs.get("RepoDigests") or ()),
        architecture=attrs.get("Architecture") or "",
        labels=attrs.get("Config", {}).get("Labels") or {},
    )
