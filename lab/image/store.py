"""The node images: built once from the distribution's packages, and kept by content.

An image is named by a digest of everything that it is made from. A copy in the checkout (`.lab/images`) brings it back
into an engine that has lost it, so that `lab-down` can leave the engine as it was.
"""

import contextlib
import shutil
from pathlib import Path

import docker
from docker.errors import ImageNotFound
from docker.models.images import Image

from lab.base.place import CHECKOUT, CHECKOUT_LABEL, IMAGE_LABEL, LABEL, STATE
from lab.base.say import step
from lab.host.facts import Host
from lab.image import build
from lab.image.recipe import Recipe, recipe
from launcher.base import atomic_file
from launcher.base.errors import ExitCode, RingmasterError

CACHE = STATE / "images"
_NEEDED_GB = 3


def provide(client: docker.DockerClient, kind: str, host: Host) -> str:
    """Return the id of the image of that kind: the engine's own, the copy from the checkout, or a new one."""
    wanted = recipe(kind, host)
    image = _find(client, wanted)
    if image is None and _cached(wanted).exists():
        with step(f"bringing back the {kind} node image"), _cached(wanted).open("rb") as tar:
            client.images.load(tar)
        image = _find(client, wanted)
    if image is None:
        image = _build(client, wanted, host)
    return str(image.id)


def remove(client: docker.DockerClient) -> None:
    """Remove this checkout's images from the engine, and what an interrupted build has left there."""
    for container in client.containers.list(all=True, filters={"label": f"{LABEL}={build.LABEL_VALUE}"}):
        container.remove(force=True, v=True)
    images = client.images.list(filters={"label": f"{CHECKOUT_LABEL}={CHECKOUT}"})
    # Those that others are built on come last; they may already be gone with the last of these.
    for image in sorted(images, key=lambda image: -len(image.history())):
        with contextlib.suppress(ImageNotFound):
            client.images.remove(str(image.id), force=True)


def _find(client: docker.DockerClient, wanted: Recipe) -> Image | None:
    labels = [f"{IMAGE_LABEL}={wanted.kind}-{wanted.digest}", f"{CHECKOUT_LABEL}={CHECKOUT}"]
    images = client.images.list(filters={"label": labels})
    return images[0] if images else None


def _build(client: docker.DockerClient, wanted: Recipe, host: Host) -> Image:
    check_disk(str(client.info().get("DockerRootDir", "/")))
    below = provide(client, "bare", host) if wanted.kind != "bare" else ""
    with step(f"building the {wanted.kind} node image ({wanted.distribution} {wanted.codename}), once"):
        if below:
            image = build.finish(client, below, wanted, host)
        else:
            with build.base(client, wanted, host) as start:
                image = build.finish(client, start, wanted, host)
        _keep(image, wanted)
    return image


def check_disk(engine_folder: str) -> None:
    """Refuse a build that would fill a disk.

    Raises:
        RingmasterError: there is too little room.
    """
    for folder in (engine_folder, str(STATE.parent)):
        if not Path(folder).exists():
            continue
        free = shutil.disk_usage(folder).free >> 30
        if free < _NEEDED_GB:
            raise RingmasterError(
                f"the lab's images need {_NEEDED_GB} GB, {folder} has {free} GB free; free some (docker system prune?)",
                exit_code=ExitCode.NOT_STARTED,
            )


def _keep(image: Image, wanted: Recipe) -> None:
    """Put a copy into the checkout, and remove older ones."""
    CACHE.mkdir(parents=True, exist_ok=True)
    for pattern in (f"{wanted.kind}-*", f".{wanted.kind}-*"):  # the second: copies that were interrupted
        for old in CACHE.glob(pattern):
            old.unlink()
    with atomic_file.replacing(_cached(wanted)) as tar:
        for chunk in image.save(named=True):
            tar.write(chunk)


def _cached(wanted: Recipe) -> Path:
    return CACHE / f"{wanted.kind}-{wanted.digest}.tar"
