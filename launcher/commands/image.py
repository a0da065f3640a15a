"""`make image`: build the training image on the first node, record it, and have it delivered to every node."""

import datetime
import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.terminal import visible
from launcher.commands import provision
from launcher.commands.asking import SUDO, VAULT
from launcher.commands.inventory import Inventory, open_cluster
from launcher.image import base_image, content, prune
from launcher.image import record as image_record
from launcher.image.base_image import Base
from launcher.image.builder import Builder
from launcher.image.content import LOCKS, Wanted
from launcher.image.labels import ARCHITECTURES, CUDA, PACKAGES, REQUIREMENTS, TRAINER
from launcher.ssh.pool import connected

_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*")
_FIRST_GB, _NEXT_GB = 16.0, 1.0
"""The disk space that a build takes: the wheels as downloaded, installed, and compressed for the delivery."""
_CACHE = "20GB"
"""How much the engine keeps of its build cache; the oldest entries go first."""
_VERSIONS = "/opt/venv/ringmaster.json"
_PYTHON = "/opt/venv/bin/python"
_ASK_ARCHITECTURES = "import torch; print(getattr(torch._C, '_cuda_getArchFlags', str)() or '')"
"""torch.cuda.get_arch_list() says nothing where there is no GPU; a build without CUDA lacks the function."""
_SHOWN = 19  # characters of an image's ID in messages


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """The variables as the user typed them; an empty one is its default."""

    inventory: str = ""
    limit: str = ""
    base: str = ""
    cuda: str = ""
    requirements: str = ""
    ask: str = ""


@dataclass(frozen=True, kw_only=True)
class _Image:
    """An image, on the node that builds."""

    id: str
    built: bool
    """False: it was there before."""
    base: Base
    labels: dict[str, str]


def run(options: ImageOptions, *, debug: bool = False) -> int:
    """Build the image, record it, deliver it; return the exit code.

    Raises:
        RingmasterError: the request or the inventory is at fault, or the build failed: nothing was recorded.
    """
    wanted = wanted_image(options)
    inventory = open_cluster(options.inventory, limit=options.limit, ask=options.ask, askable=(SUDO, VAULT))
    _refuse_another(inventory)
    record = image_record.place(inventory.path)
    first = inventory.hosts[0]
    began = time.monotonic()
    with connected((first,), inventory.pins) as remotes:
        builder = Builder(remotes[first.name])
        try:
            image = _provide(builder, wanted, image_record.read_base(record))
        except KeyboardInterrupt as error:
            raise RingmasterError(
                "stopped; no image was recorded, and the next `make image` continues from what was built so far",
                exit_code=ExitCode.INTERRUPTED,
            ) from error
        before = image_record.read_lenient(record)
        if before != image.id:
            image_record.write(record, _to_record(image, wanted))
        prune.remove(builder.engine, image.id, before, image.base.name)
    what = f"built in {time.monotonic() - began:.1f} s" if image.built else "unchanged"
    print(f"ringmaster: image {image.id[:_SHOWN]} on {first.name}: {what}; delivering it to every node", flush=True)
    delivery = provision.Options(inventory=options.inventory, limit=options.limit, tags="train_image")
    return provision.run(provision.Verb.PROVISION, delivery, debug=debug, inventory=inventory)


def wanted_image(options: ImageOptions) -> Wanted:
    """Return the image that the user asked for, once its values are checked.

    Raises:
        RingmasterError: a value can't be right.
    """
    if options.cuda not in {"", *LOCKS}:
        raise RingmasterError(f"CUDA={options.cuda}: must be one of {', '.join(sorted(LOCKS))}")
    if options.base and not _REFERENCE.fullmatch(options.base):
        raise RingmasterError(f"BASE={options.base}: must be an image's name, such as debian:bookworm-slim")
    requirements = None
    if options.requirements:
        try:
            requirements = Path(options.requirements).expanduser().read_bytes()
        except OSError as error:
            raise RingmasterError(f"REQUIREMENTS={options.requirements}: {error.strerror}") from error
    return Wanted(base=options.base, cuda=options.cuda, requirements=requirements)


def _refuse_another(inventory: Inventory) -> None:
    """Refuse an inventory that names an image: that one counts, so the one built here would be delivered nowhere."""
    host = next((host for host in inventory.hosts if host.settings.get("image")), None)
    if host:
        raise RingmasterError(
            f"{inventory.path}: {host.name} has ringmaster_image: {host.settings['image']}, which is what "
            "`make provision TAGS=train_image` delivers; remove that setting to build an image, or build on it with "
            "BASE="
        )


def _provide(builder: Builder, wanted: Wanted, last_base: tuple[str, str]) -> _Image:
    """Return the image, after building those of its layers that are not on the node.

    Args:
        last_base: the name and the digest of the base that the last image was built on.
    """
    base = base_image.provide(builder, wanted.base)
    if moved := base.moved(*last_base):
        print(f"ringmaster: {visible(moved)}", flush=True)
    context = content.context(wanted)
    layers = content.packages_tag(wanted, base.id)
    arguments = {"BASE": base.name, "LOCK": wanted.lock}
    if not builder.has(layers):
        _check_room(builder, _FIRST_GB)
        what = f"{builder.remote.name} builds on {base.shown}; this first build installs PyTorch and takes minutes"
        print(f"ringmaster: {visible(what)}", flush=True)
        builder.build("packages", layers, context, arguments=arguments, labels={})
        _prune_cache(builder)
    if wanted.requirements is not None:
        below, layers = layers, content.requirements_tag(wanted, layers)
        if not builder.has(layers):
            _check_room(builder, _NEXT_GB)
            builder.build("requirements", layers, context, arguments={**arguments, "PACKAGES": below}, labels={})
    tag = content.train_tag(layers)
    present = builder.has(tag)
    if not present:
        _check_room(builder, _NEXT_GB)
        labels = _labels(builder, wanted, base, layers)
        builder.build("image", tag, context, arguments={**arguments, "PACKAGES": layers}, labels=labels)
    image = builder.engine.images.get(tag)
    return _Image(id=str(image.id), built=not present, base=base, labels=dict(image.labels))


def _labels(builder: Builder, wanted: Wanted, base: Base, layers: str) -> dict[str, str]:
    """Return the image's labels: OCI's, and ours, which tell a job whether it can use the image."""
    versions = _versions(builder, layers)
    if wanted.cuda and wanted.cuda != versions["cuda"].partition(".")[0]:
        raise builder.failed(
            f"CUDA={wanted.cuda}: {base.shown} brings a PyTorch of its own, for CUDA {versions['cuda']}: leave CUDA "
            "out, or choose another base"
        )
    standard = {
        "title": "Ringmaster's training image",
        "description": f"PyTorch {versions['torch']}, torchvision {versions['torchvision']}, the bundled trainer",
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "base.name": base.shown,
        "base.digest": base.digest or base.id,
    }
    return {
        **{f"org.opencontainers.image.{key}": value for key, value in standard.items()},
        TRAINER: content.trainer_hash(),
        CUDA: versions["cuda"],
        ARCHITECTURES: _architectures(builder, layers),
        PACKAGES: json.dumps(versions["packages"], separators=(",", ":")),
        REQUIREMENTS: wanted.requirements_hash,
        prune.LAYERS: layers,
    }


def _versions(builder: Builder, layers: str) -> dict[str, Any]:
    """Return the versions that are installed in the packages layer, as the build recorded them."""
    versions: dict[str, Any] = json.loads(_run(builder, layers, "cat", _VERSIONS))
    return versions


def _architectures(builder: Builder, layers: str) -> str:
    """Return what the PyTorch in the packages layer has code for: it knows that without a GPU."""
    return _run(builder, layers, _PYTHON, "-c", _ASK_ARCHITECTURES).decode().strip()


def _run(builder: Builder, image: str, program: str, *words: str) -> bytes:
    """Run a program of an image that was built; return what it prints."""
    command = ["docker", "run", "--rm", "--network=none", "--log-driver=none", f"--entrypoint={program}", image, *words]
    done = builder.run(command)
    if done.code:
        raise builder.failed(f"the image that was built can't be run ({done.why})")
    return done.out


def _check_room(builder: Builder, needed_gb: float) -> None:
    if builder.means.free_gb < needed_gb:
        raise builder.failed(
            f"building needs {needed_gb:.0f} GB where the engine keeps its images, {builder.means.free_gb:.1f} GB are "
            "free: free some (`docker system df` shows what takes the space), or build on another node (LIMIT=)"
        )


def _prune_cache(builder: Builder) -> None:
    """Bound the engine's build cache; the layers themselves are kept under their names."""
    builder.run(["docker", "builder", "prune", "--force", f"--keep-storage={_CACHE}"], limit_s=300)


def _to_record(image: _Image, wanted: Wanted) -> dict[str, str]:
    packages = json.loads(image.labels[PACKAGES])
    return {
        image_record.REFERENCE: image.id,
        "built_at": image.labels["org.opencontainers.image.created"],
        "base": image.base.shown,
        "base_digest": image.base.digest or image.base.id,
        "torch": packages["torch"],
        "cuda": image.labels[CUDA],
        "trainer": image.labels[TRAINER],
        "requirements": wanted.requirements_hash,
    }
