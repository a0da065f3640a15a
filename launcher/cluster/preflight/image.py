"""The training image as a node's engine shows it, and what speaks against starting a job from it. Pure."""

from collections.abc import Iterator, Sequence

from launcher.cluster.preflight.node_facts import ProbeAnswer
from launcher.image.labels import TRAINER, ImageFacts

_DRIVERS = {13: 580, 12: 525, 11: 450}
"""Oldest driver series by CUDA's major version: NVIDIA's CUDA Compatibility, "Minor Version Compatibility"."""
_LINE_OF_OLD_DRIVERS = 12
"""The CUDA that `make image` can be asked for instead."""
_SHOWN = 19  # characters of an image's ID


def names_there(look: ProbeAnswer, reference: str) -> tuple[str, ...]:
    """What to ask the node's engine for, in order: it may know the image by another name than the recorded one.

    A node that was handed the image by another one has written down what it is there.
    """
    if look.image_record.get("reference") != reference:
        return (reference,)
    return tuple(
        dict.fromkeys([reference, *filter(None, (look.image_record.get("id"), look.image_record.get("name")))])
    )


def absent(look: ProbeAnswer, reference: str) -> str:
    """What to say where the node's engine knows none of `names_there`."""
    other = look.image_record.get("reference")
    what = f"; it has {other[:_SHOWN]}" if other and other != reference else ""
    return f"the image {_short(reference)} is not there{what}: `make provision TAGS=train_image` brings it"


def same(one: ImageFacts, other: ImageFacts) -> bool:
    """Whether two nodes have the same image: an engine that keeps images in containerd calls it by another ID."""
    return not ({one.id} | one.digests).isdisjoint({other.id} | other.digests)


def usual(images: Sequence[ImageFacts]) -> ImageFacts:
    """The image that most nodes have."""
    return max(images, key=lambda one: sum(same(one, other) for other in images))


def other_one(image: ImageFacts, usual: ImageFacts) -> str:
    """What to say where a node has another image than most."""
    return (
        f"its image ({_short(image.id)}) is not that of the other nodes ({_short(usual.id)}): remove it there, then "
        "`make provision TAGS=train_image`"
    )


def made_by_others(image: ImageFacts) -> str:
    """What speaks against the image itself, on whichever node; empty if nothing does."""
    if TRAINER in image.labels:
        return ""
    return (
        f"{_short(image.id)} was not made by `make image` (it has no label {TRAINER}), so it can't run a job: "
        "`make image BASE=<that image>` builds on it; mend ringmaster_image"
    )


def unfit(image: ImageFacts, look: ProbeAnswer, *, uses_gpus: bool) -> Iterator[str]:
    """Yield what speaks against running the image on this node."""
    if image.architecture and look.architecture and image.architecture != look.architecture:
        yield (
            f"the image is for {image.architecture}, this node is {look.architecture}: "
            "leave it out (LIMIT=), or build one for it: `make image LIMIT=<nodes of this kind>`"
        )
    if uses_gpus:
        yield from _old_driver(image.cuda, look)


def _old_driver(cuda: str, look: ProbeAnswer) -> Iterator[str]:
    major = int(cuda.partition(".")[0]) if cuda.partition(".")[0].isdigit() else 0
    needed = _DRIVERS.get(major, 0)
    driver = min((gpu.driver for gpu in look.gpus), key=_series, default="")
    if not needed or not _series(driver) or _series(driver) >= needed:
        return
    older = _series(driver) >= _DRIVERS[_LINE_OF_OLD_DRIVERS] and major > _LINE_OF_OLD_DRIVERS
    way_out = f"`make image CUDA={_LINE_OF_OLD_DRIVERS}`, or " if older else ""
    yield (
        f"its driver {driver} is too old for the image's CUDA {cuda}, which needs {needed} or newer: "
        f"{way_out}install a newer driver"
    )


def _series(driver: str) -> int:
    first = driver.partition(".")[0]
    return int(first) if first.isdigit() else 0


def _short(reference: str) -> str:
    """A reference with as much of its digest as tells it from others."""
    name, at, digest = reference.rpartition("@")
    return f"{name}{at}{digest[:_SHOWN]}"
