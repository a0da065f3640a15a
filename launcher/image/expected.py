"""What is known of an image before it is built, so that jobs are refused before. Pure, but for reading the lock."""

import json

from packaging.requirements import Requirement

from launcher.base.paths import ROOT
from launcher.image import markers
from launcher.image.content import SUITES_PYTHON, Wanted, trainer_hash
from launcher.image.cuda import oldest_code
from launcher.image.labels import ARCHITECTURES, CUDA, PACKAGES, REQUIREMENTS, TRAINER, ImageFacts

TO_BE_BUILT = "IMAGE-TO-BE-BUILT"
"""Stands for the ID of an image that nobody has yet."""


def to_be_built(wanted: Wanted, architecture: str) -> ImageFacts:
    """Return what `make_image` would build; what only the user's own base, torch or requirements tell is left out."""
    labels = {TRAINER: trainer_hash(), REQUIREMENTS: wanted.requirements_hash}
    if not wanted.base and not wanted.torch:
        labels |= {CUDA: wanted.cuda_series, ARCHITECTURES: oldest_code(wanted.cuda_series)}
    if not wanted.base and not wanted.torch and wanted.requirements is None:
        labels[PACKAGES] = json.dumps(_locked(wanted.lock, architecture))
    return ImageFacts(id=TO_BE_BUILT, architecture=architecture, labels=labels, expected=True)


def _locked(lock: str, architecture: str) -> dict[str, str]:
    """Return the packages that a lock installs, with their versions, as docker/check.py lists those of an image."""
    values = markers.environment(architecture, SUITES_PYTHON)
    lines = (ROOT / "requirements" / lock).read_text(encoding="utf-8").splitlines()
    locked = [Requirement(line.rstrip(" \\")) for line in lines if line[:1].isalnum()]
    there = [one for one in locked if one.marker is None or one.marker.evaluate(dict(values))]
    return {"python": SUITES_PYTHON, **{one.name: str(one.specifier).removeprefix("==") for one in there}}
