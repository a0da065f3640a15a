"""`make image`: builds the training image on the first node, records what it is, has it delivered to every node."""

import datetime
import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.base.errors import ExitCode, RingmasterError
from launcher.commands import provision
from launcher.commands.inventory import inventory_path, pinned_file, refuse_processes
from launcher.image import base_image, content, prune
from launcher.image import record as image_record
from launcher.image.base_image import Base
from launcher.image.builder import Builder
from launcher.image.content import LOCKS, Wanted
from launcher.image.labels import CUDA, PACKAGES, REQUIREMENTS, TRAINER
from launcher.inventory import hosts as inventory
from launcher.inventory.hosts import Host
from launcher.ssh.connection import Finished
from launcher.ssh.pool import connected

_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*")
_FIRST_GB, _NEXT_GB = 16.0, 1.0
"""Room that building takes: the wheels as they come, installed, and once more compressed to be handed on."""
_CACHE = "20GB"
"""Of what the engine keeps from builds; the oldest goes first."""
_VERSIONS = "/opt/venv/ringmaster.json"
_SHOWN = 19  # characters of an image's ID


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """The variables as the user typed them; empty is the default of each."""

    inventory: str = ""
    limit: str = ""
    base: str = ""
    cuda: str = ""
    requirements: str = ""


@dataclass(frozen=True, kw_only=True)
class _Made:
    """An image on the node that built it."""

    id: str
    built: bool
    """Whether it was not there before."""
    base: Base
    labels: dict[str, str]


def run(options: ImageOptions, *, debug: bool = False) -> int:
    """Build, record, deliver; return the exit code.

    Raises:
        RingmasterError: the request or the inventory is at fault, or building failed: nothing was recorded.
    """
    wanted = wanted_image(options)
    path = inventory_path(options.inventory)
    hosts = inventory.read(path, limit=options.limit)
    refuse_processes(path, hosts)
    _refuse_another(path, hosts)
    record = image_record.place(path)
    began = time.monotonic()
    with connected(hosts[:1], pinned_file(path)) as remotes:
        builder = Builder(remotes[hosts[0].name])
        try:
            made = _make(builder, wanted)
        except KeyboardInterrupt as error:
            raise RingmasterError(
                "stopped; no image was recorded, and the next `make image` goes on with what was built so far",
                exit_code=ExitCode.INTERRUPTED,
            ) from error
        before = image_record.read_lenient(record)
        if before != made.id:
            image_record.write(record, _to_record(made, wanted))
        prune.remove(builder.engine, made.id, before, made.base.name)
    what = f"built in {time.monotonic() - began:.1f} s" if made.built else "unchanged"
    print(f"ringmaster: image {made.id[:_SHOWN]} on {hosts[0].name}: {what}; now to every node", flush=True)
    delivery = provision.Options(inventory=options.inventory, limit=options.limit, tags="train_image")
    return provision.run(provision.Verb.PROVISION, delivery, debug=debug)


def wanted_image(options: ImageOptions) -> Wanted:
    """Check what the user asked for.

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


def _refuse_another(path: Path, hosts: tuple[Host, ...]) -> None:
    """What stands in the inventory itself counts: an image that was built would be delivered to nobody."""
    other = next((host for host in hosts if host.settings.get("image")), None)
    if other:
        raise RingmasterError(
            f"{path}: {other.name} has ringmaster_image: {other.settings['image']}, which is what `make provision "
            "TAGS=train_image` delivers; take that away to build one, or build on it with BASE="
        )


def _make(builder: Builder, wanted: Wanted) -> _Made:
    """Build whatever of it is not there."""
    base = base_image.provide(builder, wanted.base)
    context = content.context(wanted)
    layers = content.packages_tag(wanted, base.id)
    arguments = {"BASE": base.name, "LOCK": wanted.lock}
    if not builder.has(layers):
        _check_room(builder, _FIRST_GB)
        print(f"ringmaster: {builder.remote.name} builds on {base.shown}, this once with PyTorch (minutes)", flush=True)
        builder.build("packages", layers, context, arguments=arguments, labels={})
        _forget_cache(builder)
    if wanted.requirements is not None:
        below, layers = layers, content.requirements_tag(wanted, layers)
        if not builder.has(layers):
            _check_room(builder, _NEXT_GB)
            builder.build("requirements", layers, context, arguments={**arguments, "PACKAGES": below}, labels={})
    tag = content.train_tag(layers)
    there = builder.has(tag)
    if not there:
        _check_room(builder, _NEXT_GB)
        labels = _labels(builder, wanted, base, layers)
        builder.build("image", tag, context, arguments={**arguments, "PACKAGES": layers}, labels=labels)
    found = builder.engine.images.get(tag)
    return _Made(id=str(found.id), built=not there, base=base, labels=dict(found.labels))


def _labels(builder: Builder, wanted: Wanted, base: Base, layers: str) -> dict[str, str]:
    """What the image says of itself: OCI's own keys, and ours, by which a job knows whether it can use it."""
    versions = _versions(builder, layers)
    if wanted.cuda and wanted.cuda != versions["cuda"].partition(".")[0]:
        raise builder.failed(
            f"CUDA={wanted.cuda}: {base.shown} brings a PyTorch of its own, for CUDA {versions['cuda']}: leave CUDA "
            "away, or choose another base"
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
        PACKAGES: json.dumps(versions["packages"], separators=(",", ":")),
        REQUIREMENTS: wanted.requirements_hash,
        prune.LAYERS: layers,
    }


def _versions(builder: Builder, layers: str) -> dict[str, Any]:
    """What the build has found installed."""
    words = ["docker", "run", "--rm", "--network=none", "--log-driver=none", "--entrypoint=cat", layers, _VERSIONS]
    done: Finished = builder.remote.run(words)
    if done.code:
        raise builder.failed(f"what was built can't be run ({done.why})")
    found: dict[str, Any] = json.loads(done.out)
    return found


def _check_room(builder: Builder, needed_gb: float) -> None:
    if builder.means.free_gb < needed_gb:
        raise builder.failed(
            f"building needs {needed_gb:.0f} GB where its engine keeps images, {builder.means.free_gb:.1f} are free: "
            "free some (`docker system df` shows what takes it), or build on another node (LIMIT=)"
        )


def _forget_cache(builder: Builder) -> None:
    """Bound what the engine keeps from builds; the layers themselves are kept by name."""
    builder.remote.run(["docker", "builder", "prune", "--force", f"--keep-storage={_CACHE}"], limit_s=300)


def _to_record(made: _Made, wanted: Wanted) -> dict[str, str]:
    packages = json.loads(made.labels[PACKAGES])
    return {
        image_record.REFERENCE: made.id,
        "built_at": made.labels["org.opencontainers.image.created"],
        "base": made.base.shown,
        "base_digest": made.base.digest or made.base.id,
        "torch": packages["torch"],
        "cuda": made.labels[CUDA],
        "trainer": made.labels[TRAINER],
        "requirements": wanted.requirements_hash,
    }
