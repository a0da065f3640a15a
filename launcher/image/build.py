"""Builds the training image on a node, and records it: for `make image`, and for a job that lacks one."""

import datetime
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.errors import DockerException

from launcher.base.errors import ExitCode, RingmasterError, StoppedError
from launcher.base.paths import ON_NODE
from launcher.base.terminal import visible
from launcher.image import base_image, content, prune
from launcher.image import record as image_record
from launcher.image.base_image import Base
from launcher.image.builder import Builder
from launcher.image.content import Wanted
from launcher.image.labels import ARCHITECTURES, CHOSEN_TORCH, CUDA, PACKAGES, REQUIREMENTS, TRAINER
from launcher.image.turn import turn_to_build
from launcher.ssh.connection import Remote

_FIRST_GB, _NEXT_GB = 16.0, 1.0
"""The disk space that a build takes: the wheels as downloaded, installed, and compressed for the delivery."""
_CACHE = "20GB"
"""How much the engine keeps of its build cache; the oldest entries go first."""
_VERSIONS = "/opt/venv/ringmaster.json"
_PYTHON = "/opt/venv/bin/python"
_ASK_CONTENTS = ON_NODE / "image_contents.py"
_OCI = "org.opencontainers.image."


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image, on the node that builds."""

    id: str
    built: bool
    """False: it was there before."""
    base: str
    """The name of its base in the engine."""
    labels: Mapping[str, str]


def make_image(remote: Remote, record: Path, wanted: Wanted, say: Callable[[str], None]) -> Image:
    """Build on a node those layers of an image that it lacks, and record the image.

    Raises:
        RingmasterError: the build failed or was stopped: nothing was recorded.
    """
    last_base = image_record.read_base(record)
    return _made(remote, record, image_record.asked(wanted), say, lambda builder: _provide(builder, wanted, last_base))


def renew_image(remote: Remote, record: Path, labels: Mapping[str, str], say: Callable[[str], None]) -> Image:
    """Put our files of this checkout onto the layers of an image that `can_renew` accepts, and record the result.

    Raises:
        RingmasterError: the build failed or was stopped: nothing was recorded.
    """
    return _made(remote, record, image_record.asked_before(record), say, lambda builder: _renewed(builder, labels))


def can_renew(remote: Remote, labels: Mapping[str, str]) -> bool:
    """Return whether a node has the layers that an image with these labels is built on."""
    layers = labels.get(prune.LAYERS, "")
    with suppress(DockerException):  # it is not there
        return bool(layers) and bool(remote.engine().images.get(layers))
    return False


def _made(
    remote: Remote,
    record: Path,
    asked: Mapping[str, Any],
    say: Callable[[str], None],
    build: Callable[[Builder], Image],
) -> Image:
    try:
        with turn_to_build(remote, say):
            builder = Builder(remote)
            image = build(builder)
            before = image_record.read_lenient(record)
            if before != image.id:
                image_record.write(record, _to_record(image, asked))
            prune.remove(builder.engine, image.id, before, image.base)
    except (KeyboardInterrupt, StoppedError) as error:
        raise RingmasterError(
            "stopped; no image was recorded, and the next build continues from what was built so far",
            exit_code=error.exit_code if isinstance(error, StoppedError) else ExitCode.INTERRUPTED,
        ) from error
    return image


def _provide(builder: Builder, wanted: Wanted, last_base: tuple[str, str]) -> Image:
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
    arguments["PACKAGES"] = layers
    return _whole(builder, layers, context, arguments, base.name, lambda: _labels(builder, wanted, base, layers))


def _renewed(builder: Builder, earlier: Mapping[str, str]) -> Image:
    """Return an image of the same layers as the one with the labels `earlier`, with our present files on top."""
    layers, labels = earlier[prune.LAYERS], {**earlier, **_ours()}
    base = base_image.engines_name(earlier.get(f"{_OCI}base.name", ""), builder.means.architecture)
    return _whole(builder, layers, content.context(Wanted()), {"PACKAGES": layers}, base, lambda: labels)


def _whole(
    builder: Builder,
    layers: str,
    context: bytes,
    arguments: Mapping[str, str],
    base: str,
    labels: Callable[[], Mapping[str, str]],
) -> Image:
    """Return the image of our files on top of `layers`, built if it isn't there."""
    tag = content.train_tag(layers)
    present = builder.has(tag)
    if not present:
        _check_room(builder, _NEXT_GB)
        builder.build("image", tag, context, arguments=arguments, labels=labels())
    image = builder.engine.images.get(tag)
    return Image(id=str(image.id), built=not present, base=base, labels=dict(image.labels))


def _labels(builder: Builder, wanted: Wanted, base: Base, layers: str) -> dict[str, str]:
    """Return the image's labels: OCI's, and ours, which tell a job whether it can use the image."""
    versions = _versions(builder, layers)
    if wanted.cuda and wanted.cuda != versions["cuda"].partition(".")[0]:
        if wanted.torch:
            raise builder.failed(
                f"CUDA={wanted.cuda}: in this node's package index, torch {versions['torch']} is made for CUDA "
                f"{versions['cuda']}: leave CUDA out, or choose another TORCH"
            )
        raise builder.failed(
            f"CUDA={wanted.cuda}: {base.shown} brings a PyTorch of its own, for CUDA {versions['cuda']}: leave CUDA "
            "out, or choose another base"
        )
    if wanted.torch and not f"{versions['torch']}.".startswith((f"{wanted.torch}.", f"{wanted.torch}+")):
        raise builder.failed(
            f"TORCH={wanted.torch}: {base.shown} brings torch {versions['torch']} of its own: leave TORCH out, or "
            "choose another base"
        )
    standard = {
        "title": "Ringmaster's training image",
        "description": f"PyTorch {versions['torch']}, torchvision {versions['torchvision']}, the bundled trainer",
        "base.name": base.shown,
        "base.digest": base.digest or base.id,
    }
    return {
        **{f"{_OCI}{key}": value for key, value in standard.items()},
        **_ours(),
        CUDA: versions["cuda"],
        ARCHITECTURES: _architectures(builder, layers),
        PACKAGES: json.dumps(versions["packages"], separators=(",", ":")),
        REQUIREMENTS: wanted.requirements_hash,
        CHOSEN_TORCH: wanted.torch,
        prune.LAYERS: layers,
    }


def _ours() -> dict[str, str]:
    """Return the labels that change with our own files."""
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {f"{_OCI}created": created, TRAINER: content.trainer_hash()}


def _versions(builder: Builder, layers: str) -> dict[str, Any]:
    """Return the versions that are installed in the packages layer, as the build recorded them."""
    versions: dict[str, Any] = json.loads(_run(builder, layers, "cat", _VERSIONS))
    return versions


def _architectures(builder: Builder, layers: str) -> str:
    """Return what the PyTorch in the packages layer has code for: it knows that without a GPU."""
    said = _run(builder, layers, _PYTHON, "-c", _ASK_CONTENTS.read_text(encoding="utf-8")).decode()
    return str(json.loads(said.strip().rpartition("\n")[2])["architectures"])


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


def _to_record(image: Image, asked: Mapping[str, Any]) -> dict[str, Any]:
    packages = json.loads(image.labels[PACKAGES])
    return {
        image_record.REFERENCE: image.id,
        "built_at": image.labels[f"{_OCI}created"],
        "base": image.labels[f"{_OCI}base.name"],
        "base_digest": image.labels[f"{_OCI}base.digest"],
        "torch": packages["torch"],
        "cuda": image.labels[CUDA],
        "trainer": image.labels[TRAINER],
        "requirements": image.labels[REQUIREMENTS],
        **asked,
    }
