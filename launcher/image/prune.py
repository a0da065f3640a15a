"""Removes images that `make image` built earlier: the current and the previous one stay, older ones fill the disk."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import docker
from docker.errors import APIError, DockerException

from launcher.image.content import BASE, PACKAGES, TRAIN

LAYERS = "ringmaster.layers"
"""Label of an image: the name of the layers with PyTorch that it is built on."""


@dataclass(frozen=True, kw_only=True)
class Image:
    """One of our images, as the engine lists it."""

    id: str
    names: tuple[str, ...]
    created: int
    """Unix time."""
    labels: Mapping[str, str] = field(default_factory=dict)


def superfluous(images: Sequence[Image], present: str, before: str, base: str) -> list[str]:
    """Return the names to remove: all of ours, except those of the two kept images and of their layers. Pure.

    Args:
        present: ID of the current image.
        before: ID of the previous one; if it is the same or no longer exists, the newest other one is kept.
        base: the base's name.
    """
    trained = [one for one in images if _called(one, TRAIN) and one.id != present]
    trained.sort(key=lambda one: (one.id == before, one.created), reverse=True)
    kept = {present, *(one.id for one in trained[:1])}
    needed = {one.labels.get(LAYERS, "") for one in images if one.id in kept} | {base}
    names = [name for one in images for name in one.names if one.id not in kept and _ours(name)]
    return sorted(name for name in names if name not in needed)


def remove(engine: docker.DockerClient, present: str, before: str, base: str) -> list[str]:
    """Remove superfluous images, except those that a container uses; return the names that are gone.

    A name that can't be removed is no reason to fail: the next build tries again.
    """
    gone = []
    with suppress(DockerException):
        listed = [
            Image(
                id=one["Id"],
                names=tuple(one.get("RepoTags") or ()),
                created=int(one.get("Created") or 0),
                labels=one.get("Labels") or {},
            )
            for one in engine.api.images()
        ]
        for name in superfluous(listed, present, before, base):
            with suppress(APIError):
                engine.images.remove(name)
                gone.append(name)
    return gone


def _called(image: Image, repository: str) -> bool:
    return any(name.startswith(f"{repository}:") for name in image.names)


def _ours(name: str) -> bool:
    return name.startswith((f"{BASE}:", f"{PACKAGES}:", f"{TRAIN}:"))
