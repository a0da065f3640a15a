"""Which code each measurement measures, and whether that code is still what it was when the figures were made.

A result stores a fingerprint of these files. Comparing contents needs no git, so it works in a shallow clone and in a
tarball, and it survives commits that were rewritten before they landed.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from launcher.base.paths import ROOT

_CODE = {".py", ".yml"}
_TRAINER = ("trainer", "requirements/trainer.txt")
_TRAININGS = (*_TRAINER, "benchmarks/trainings.py", "benchmarks/naive.py")
_COMPUTE = ("benchmarks/compute.py", "benchmarks/compute_child.py")
_LAUNCHER = ("launcher", "fabfile.py", "Makefile", "requirements/control.txt")

MEASURED: Mapping[str, tuple[str, ...]] = {
    "input": (*_TRAINER, *_COMPUTE, "benchmarks/naive.py", "benchmarks/input.py"),
    "step": (*_TRAININGS, *_COMPUTE, "benchmarks/step.py", "benchmarks/step_choices.py"),
    "stream": (*_TRAINER, "benchmarks/stream.py"),
    "recipe": (*_TRAININGS, "benchmarks/recipe.py"),
    "scaling": (*_TRAININGS, "benchmarks/scaling.py"),
    "report": (*_TRAININGS, "benchmarks/report.py"),
    "gpu": (*_TRAINER, "benchmarks/trainings.py", "benchmarks/gpu.py"),
    "first-step": (*_TRAINER, *_LAUNCHER, "benchmarks/first_step.py"),
    "provision": (*_LAUNCHER, "playbooks", "ansible.cfg", "lab", "benchmarks/provision.py"),
    "delivery": ("playbooks", "ansible.cfg", "lab", "benchmarks/delivery.py"),
    "launch": (*_TRAINER, *_LAUNCHER, "docker/Dockerfile", "docker/install", "benchmarks/launch.py"),
}
"""By the measurement's name: files, and folders with all Python and YAML files below them."""


def fingerprint(name: str, root: Path = ROOT) -> str:
    """Return a short digest of the code that the measurement `name` measures, as it is now under `root`."""
    digest = hashlib.sha256()
    for path in sorted({file for place in MEASURED.get(name, ()) for file in _files(root / place)}):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def note(name: str, measured: str, root: Path = ROOT) -> str:
    """Return what a figure's origin says of the code since the run whose fingerprint is `measured`; empty: unchanged.

    A result without a fingerprint is older than fingerprints are, and all the code has moved since.
    """
    return "" if measured == fingerprint(name, root) else "; the code has changed since"


def _files(place: Path) -> Iterator[Path]:
    if place.is_dir():
        yield from (path for path in place.rglob("*") if path.suffix in _CODE and "__pycache__" not in path.parts)
    elif place.exists():
        yield place
