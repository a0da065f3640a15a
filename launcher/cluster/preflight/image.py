"""The training image as a node's engine shows it, and why a job can't be started from it. Pure."""

from collections.abc import Iterator, Sequence

from launcher.cluster.preflight.probe_answer import ProbeAnswer
from launcher.image import cuda
from launcher.image.labels import ImageFacts

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


def image_unfit(image: ImageFacts, answer: ProbeAnswer, devices: Sequence[str], *, named: bool) -> Iterator[str]:
    """Yield each reason why the image can't run on this node.

    Args:
        devices: the indices of the GPUs that the job would use.
        named: whether it is the inventory that names it.
    """
    if image.architecture and answer.architecture and image.architecture != answer.architecture:
        way = "build one for it: `make image LIMIT=<nodes of this kind>`"
        if named:
            way = f"name one for {answer.architecture} (ringmaster_image), for nodes of this kind alone"
        kinds = f"the image is for {image.architecture}, this node is {answer.architecture}"
        yield f"{kinds}: leave it out (LIMIT=), or {way}"
    if not devices:
        return
    oldest = cuda.oldest_driver(gpu.driver for gpu in answer.gpus)
    if what := cuda.driver_problem(oldest, image.cuda, named=named):
        yield what
    cards: dict[str, list[str]] = {}
    for gpu in answer.gpus:
        if gpu.index not in devices:
            continue
        if what := cuda.card_problem(gpu.capability, image.architectures, image.cuda, named=named):
            cards.setdefault(f"({gpu.model}) has {what}", []).append(gpu.index)
    yield from (f"its GPU {', '.join(indices)} {what}" for what, indices in cards.items())


def _short(reference: str) -> str:
    """The reference, with enough of its digest to tell it from others."""
    name, at, digest = reference.rpartition("@")
    return f"{name}{at}{digest[:_SHOWN]}"
