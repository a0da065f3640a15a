"""What the training image is made from: the files that are sent to the node that builds it, and names by content.

Equal content has an equal name, so what a node already has is found by asking for it, and never built twice.
"""

import hashlib
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass

from launcher.base.paths import ROOT

BASE, PACKAGES, TRAIN = "ringmaster-base", "ringmaster-packages", "ringmaster-train"
"""Names in a node's engine, each with a tag by content: the system; PyTorch on top of it; our files on top of that."""
SUITE = "bookworm"
LOCKS = {"13": "trainer.txt", "12": "trainer-cuda12.txt"}
"""CUDA's major version -> the lock whose wheels are of it."""
USER_REQUIREMENTS = "requirements/user.txt"
_DOCKERFILE = "docker/Dockerfile"
_BUILD = ("docker/check.py", "docker/dpkg.cfg", "docker/install", "docker/packages.txt", "requirements/installer.txt")
_PROGRAMS = {"docker/install"}
_UPPER_STAGES = "FROM ${PACKAGES}"
"""In the Dockerfile: where those begin that don't change the layers with PyTorch."""
_RANK = "launcher/on_node/rank.py"
_TAG = 16  # characters of a digest


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the user asked the image to be."""

    base: str = ""
    """The user's own base; empty is ours."""
    cuda: str = ""
    """CUDA's major version; empty is the newest."""
    requirements: bytes | None = None
    """What a user's program needs besides."""

    @property
    def lock(self) -> str:
        """The lock's name, in requirements/."""
        return LOCKS[self.cuda or max(LOCKS)]

    @property
    def requirements_hash(self) -> str:
        """What a job compares its own requirements with; empty where none were given."""
        return "" if self.requirements is None else hashlib.sha256(self.requirements).hexdigest()


def trainer_hash() -> str:
    """Changes with whatever of ours is in the image: the trainer, and what starts each of its ranks."""
    return _digest(_ours())


def context(wanted: Wanted) -> bytes:
    """The tar that `docker build` reads: everything it may use, a few 100 kB."""
    files = _read(_DOCKERFILE, *_BUILD, f"requirements/{wanted.lock}") | _ours()
    if wanted.requirements is not None:
        files[USER_REQUIREMENTS] = wanted.requirements
    return _tar(files)


def base_tag(architecture: str) -> str:
    """The name of the base that we make ourselves."""
    return f"{BASE}:{SUITE}-{_digest(_read('docker/packages.txt', 'docker/dpkg.cfg'), SUITE, architecture)[:_TAG]}"


def packages_tag(wanted: Wanted, base_id: str) -> str:
    """The name of the layers with PyTorch, on a base of that ID."""
    steps = _steps((ROOT / _DOCKERFILE).read_text().partition(_UPPER_STAGES)[0])
    files = _read(*_BUILD, f"requirements/{wanted.lock}")
    return f"{PACKAGES}:{_digest(files, base_id, wanted.lock, steps)[:_TAG]}"


def requirements_tag(wanted: Wanted, packages: str) -> str:
    """The name of the layers with what the user's program needs, on top of `packages`."""
    steps = _steps((ROOT / _DOCKERFILE).read_text())
    return f"{PACKAGES}:{_digest({}, packages, wanted.requirements_hash, steps)[:_TAG]}"


def train_tag(layers: str) -> str:
    """The name of the whole image, on top of `layers`."""
    return f"{TRAIN}:{_digest(_ours(), layers, _steps((ROOT / _DOCKERFILE).read_text()))[:_TAG]}"


def system_packages() -> tuple[str, ...]:
    """Debian's packages that the image needs."""
    lines = (ROOT / "docker" / "packages.txt").read_text().splitlines()
    return tuple(filter(None, (line.partition("#")[0].strip() for line in lines)))


def _steps(dockerfile: str) -> str:
    """What a Dockerfile does, without what it says about it: a better comment shall not cost 5 GB."""
    return "\n".join(line for line in dockerfile.splitlines() if line.strip() and not line.startswith("#"))


def _ours() -> dict[str, bytes]:
    trainer = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "trainer").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    ]
    return _read(*sorted(trainer), _RANK)


def _read(*names: str) -> dict[str, bytes]:
    return {name: (ROOT / name).read_bytes() for name in names}


def _digest(files: Mapping[str, bytes], *words: str) -> str:
    parts = [*words, *(f"{name} {hashlib.sha256(content).hexdigest()}" for name, content in sorted(files.items()))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _tar(files: Mapping[str, bytes]) -> bytes:
    """Without times and owners: equal files are an equal tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755 if name in _PROGRAMS else 0o644
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
