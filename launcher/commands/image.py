"""`make image`: build the training image on the first node, record it, and have it delivered to every node."""

import re
import time
from dataclasses import dataclass, replace

from launcher.base import caller
from launcher.base.errors import RingmasterError
from launcher.base.terminal import visible
from launcher.commands import provision
from launcher.commands.asking import SSH, SUDO, VAULT
from launcher.commands.inventory import Inventory, open_cluster
from launcher.image import record as image_record
from launcher.image.build import make_image
from launcher.image.content import LOCKS, Wanted
from launcher.job.rank_python import OLDEST_TORCH, older
from launcher.ssh.pool import connected

_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*")
_VERSION = re.compile(r"\d{1,3}\.\d{1,3}(\.\d{1,3}(\+[a-z0-9.]+)?)?", re.ASCII)
_SHOWN = 19  # characters of an image's ID in messages


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """The variables as the user typed them; an empty one is its default."""

    inventory: str = ""
    limit: str = ""
    base: str = ""
    cuda: str = ""
    torch: str = ""
    requirements: str = ""
    ask: str = ""


def run(options: ImageOptions, *, debug: bool = False) -> int:
    """Build the image, record it, deliver it; return the exit code.

    Raises:
        RingmasterError: the request or the inventory is at fault, or the build failed: nothing was recorded.
    """
    wanted = wanted_image(options)
    inventory = open_cluster(options.inventory, limit=options.limit, ask=options.ask, askable=(SUDO, SSH, VAULT))
    _refuse_another(inventory)
    first = inventory.hosts[0]
    began = time.monotonic()
    with connected((first,), inventory.pins) as remotes:
        image = make_image(remotes[first.name], image_record.place(inventory.path), wanted, _say)
    what = f"built in {time.monotonic() - began:.1f} s" if image.built else "unchanged"
    _say(f"image {image.id[:_SHOWN]} on {first.name}: {what}; delivering it to every node")
    delivery = provision.Options(inventory=options.inventory, limit=options.limit, tags="train_image")
    return provision.run(provision.Verb.PROVISION, delivery, debug=debug, inventory=inventory)


def _say(text: str) -> None:
    print(f"ringmaster: {visible(text)}", flush=True)


def wanted_image(options: ImageOptions) -> Wanted:
    """Return the image that the user asked for, once its values are checked.

    Raises:
        RingmasterError: a value can't be right.
    """
    if options.cuda not in {"", *LOCKS}:
        raise RingmasterError(f"CUDA={options.cuda}: must be one of {', '.join(sorted(LOCKS))}")
    if options.base and not _REFERENCE.fullmatch(options.base):
        raise RingmasterError(f"BASE={options.base}: must be an image's name, such as debian:bookworm-slim")
    if options.torch:
        _check_torch(options.torch)
    wanted = Wanted(base=options.base, cuda=options.cuda, torch=options.torch)
    if not options.requirements:
        return wanted
    path = caller.absolute(options.requirements)
    try:
        requirements = path.read_bytes()
    except OSError as error:
        where = caller.looked_in(options.requirements)
        raise RingmasterError(f"REQUIREMENTS={options.requirements}: {error.strerror}{where}") from error
    return replace(wanted, requirements=requirements, requirements_path=str(path))


def _check_torch(version: str) -> None:
    if not _VERSION.fullmatch(version):
        raise RingmasterError(f"TORCH={version}: must be a version, such as 2.9, 2.9.1 or 2.9.1+cu126")
    if older(version, OLDEST_TORCH):
        raise RingmasterError(f"TORCH={version}: its torchrun is too old for jobs: ask for 2.0 or newer")


def _refuse_another(inventory: Inventory) -> None:
    """Refuse an inventory that names an image: that one counts, so the one built here would be delivered nowhere."""
    host = next((host for host in inventory.hosts if host.settings.get("image")), None)
    if host:
        raise RingmasterError(
            f"{inventory.path}: {host.name} has ringmaster_image: {host.settings['image']}, which is what "
            "`make provision TAGS=train_image` delivers; take that setting out to build an image (BASE=<it> builds on "
            "it then)"
        )
