"""The training image as a node's engine shows it, and why a job can't be started from it. Pure."""

from collections.abc import Iterator, Sequence

from launcher.cluster.preflight.probe_answer import ProbeAnswer
from launcher.image.labels import ImageFacts

_DRIVERS = {13: 580, 12: 525, 11: 450}
"""Oldest driver series by CUDA's major version: NVIDIA's CUDA Compatibility, "Minor Version Compatibility"."""
_LINE_OF_OLD_DRIVERS = 12
"""The CUDA version that `make image` can build with instead."""
_SHOWN = 19  # characters of an image's ID


def image_names(answer: ProbeAnswer, reference: str) -> tuple[str, ...]:
    """Return the names to ask the node's engine for, in order: it may know the image by another name than recorded.

    A node that received the image from another node has recorded the name that it has there.
    """
    if answer.image_record.get("reference") != reference:
        return (reference,)
    return tuple(
        dict.fromkeys([reference, *filter(None, (answer.image_record.get("id"), answer.image_record.get("name")))])
    )


def image_absent(answer: ProbeAnswer, reference: str) -> str:
    """Return what to say if the node's engine knows none of `image_names`."""
    other = answer.image_record.get("reference")
    what = f"; it has {other[:_SHOWN]}" if other and other != reference else ""
    return f"the image {_short(reference)} is not there{what}: `make provision TAGS=train_image` brings it"


def same_image(one: ImageFacts, other: ImageFacts) -> bool:
    """Return whether both are one image, also under two IDs: engines that keep images in containerd use their own."""
    return not ({one.id} | one.digests).isdisjoint({other.id} | other.digests)


def usual_image(images: Sequence[ImageFacts]) -> ImageFacts:
    """Return the image that most nodes have."""
    return max(images, key=lambda one: sum(same_image(one, other) for other in images))


def image_differs(image: ImageFacts, usual: ImageFacts) -> str:
    """Return what to say if a node has another image than most."""
    return (
        f"its image ({_short(image.id)}) is not that of the other nodes ({_short(usual.id)}): remove it there, then "
        "`make provision TAGS=train_image`"
    )


def image_unfit(image: ImageFacts, answer: ProbeAnswer, *, uses_gpus: bool) -> Iterator[str]:
    """Yield each reason why the image can't run on this node."""
    if image.architecture and answer.architecture and image.architecture != answer.architecture:
        yield (
            f"the image is for {image.architecture}, this node is {answer.architecture}: "
            "leave it out (LIMIT=), or build one for it: `make image LIMIT=<nodes of this kind>`"
        )
    if uses_gpus:
        yield from _old_driver(image.cuda, answer)


def fitting_cuda(answers: Sequence[ProbeAnswer]) -> str:
    """Return the CUDA version that an image must be built for because of older drivers; empty: the newest will do."""
    series = [_series(gpu.driver) for answer in answers for gpu in answer.gpus]
    oldest = min(filter(None, series), default=0)
    return str(_LINE_OF_OLD_DRIVERS) if _DRIVERS[_LINE_OF_OLD_DRIVERS] <= oldest < max(_DRIVERS.values()) else ""


def _old_driver(cuda: str, answer: ProbeAnswer) -> Iterator[str]:
    major = int(cuda.partition(".")[0]) if cuda.partition(".")[0].isdigit() else 0
    needed = _DRIVERS.get(major, 0)
    driver = min((gpu.driver for gpu in answer.gpus), key=_series, default="")
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
    """The reference, with enough of its digest to tell it from others."""
    name, at, digest = reference.rpartition("@")
    return f"{name}{at}{digest[:_SHOWN]}"
