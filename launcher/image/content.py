"""What the training image is made from: the files sent to the node that builds it, and names by content.

Equal content has an equal name. So a node can be asked for what it already has, and nothing is built twice.
"""

import hashlib
import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass

from launcher.base.paths import ROOT
from launcher.job.rank_python import older

BASE, PACKAGES, TRAIN = "ringmaster-base", "ringmaster-packages", "ringmaster-train"
"""Names in a node's engine, each with a tag by content: the system, PyTorch on top of it, our files on top of that."""
SUITE, SUITES_PYTHON = "bookworm", "3.11.2"
LOCKS = {"13": "trainer.txt", "12": "trainer-cuda12.txt"}
"""CUDA's major version -> the lock with wheels for it."""
CHOSEN = "chosen.in"
"""In place of a lock: what the user wants instead (TORCH); docker/install makes a lock of it."""
_NUMPY_2_SINCE = (2, 3)
"""The first torch whose wheels work with numpy 2."""
USER_REQUIREMENTS = "requirements/user.txt"
_DOCKERFILE = "docker/Dockerfile"
_BUILD = ("docker/check.py", "docker/dpkg.cfg", "docker/install", "docker/packages.txt", "requirements/installer.txt")
_PROGRAMS = {"docker/install"}
_UPPER_STAGES = "FROM ${PACKAGES}"
"""The line of the Dockerfile after which no stage changes the layers with PyTorch."""
_RANK = "launcher/on_node/rank.py"
_EXIT_FUNCTION = ("requirements/ringmaster_exit.py", "requirements/ringmaster_exit.pth")
_TAG = 16  # characters of a digest


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The image that the user asked for."""

    base: str = ""
    """The user's own base; empty: ours."""
    cuda: str = ""
    """CUDA's major version; empty: the newest."""
    torch: str = ""
    """The version of torch that the user chose, such as 2.9; empty: the lock's."""
    requirements: bytes | None = None
    """A requirements file with what the user's program needs in addition."""
    requirements_path: str = ""
    """Where that file was."""

    @property
    def cuda_series(self) -> str:
        """CUDA's major version, also where the user left it open; a base may bring another."""
        return self.cuda or max(LOCKS)

    @property
    def lock(self) -> str:
        """The name of the lock in requirements/, or of what stands in its place."""
        return CHOSEN if self.torch else LOCKS[self.cuda_series]

    @property
    def requirements_hash(self) -> str:
        """The hash with which a job compares that of its own requirements; empty where none were given."""
        return "" if self.requirements is None else hashlib.sha256(self.requirements).hexdigest()


def trainer_hash() -> str:
    """Return a hash of our own files in the image: the trainer, what starts each rank, and Python's exit function."""
    return _digest(_ours())


def our_files() -> list[str]:
    """Return the names, below the repository's root, of our own files in the image."""
    return sorted(_ours())


def context(wanted: Wanted) -> bytes:
    """Return the tar that `docker build` reads: everything that it may use, a few 100 kB."""
    files = _read(_DOCKERFILE, *_BUILD) | _lock(wanted) | _ours()
    if wanted.requirements is not None:
        files[USER_REQUIREMENTS] = wanted.requirements
    return _tar(files)


def base_tag(architecture: str) -> str:
    """Return the name of the base that we make ourselves."""
    return f"{BASE}:{SUITE}-{_digest(_read('docker/packages.txt', 'docker/dpkg.cfg'), SUITE, architecture)[:_TAG]}"


def packages_tag(wanted: Wanted, base_id: str) -> str:
    """Return the name of the layers with PyTorch, on the base with that ID."""
    steps = _steps((ROOT / _DOCKERFILE).read_text().partition(_UPPER_STAGES)[0])
    files = _read(*_BUILD) | _lock(wanted)
    return f"{PACKAGES}:{_digest(files, base_id, wanted.lock, steps)[:_TAG]}"


def requirements_tag(wanted: Wanted, packages: str) -> str:
    """Return the name of the layers with what the user's program needs, on top of `packages`."""
    steps = _steps((ROOT / _DOCKERFILE).read_text())
    return f"{PACKAGES}:{_digest({}, packages, wanted.requirements_hash, steps)[:_TAG]}"


def train_tag(layers: str) -> str:
    """Return the name of the whole image, on top of `layers`."""
    return f"{TRAIN}:{_digest(_ours(), layers, _steps((ROOT / _DOCKERFILE).read_text()))[:_TAG]}"


def system_packages() -> tuple[str, ...]:
    """Return the Debian packages that the image needs."""
    lines = (ROOT / "docker" / "packages.txt").read_text().splitlines()
    return tuple(filter(None, (line.partition("#")[0].strip() for line in lines)))


def _steps(dockerfile: str) -> str:
    """Return a Dockerfile's instructions without its comments: a better comment must not cost 5 GB."""
    return "\n".join(line for line in dockerfile.splitlines() if line.strip() and not line.startswith("#"))


def _lock(wanted: Wanted) -> dict[str, bytes]:
    """Return what the layers with PyTorch are installed from, under its name in the context."""
    name = f"requirements/{wanted.lock}"
    if not wanted.torch:
        return _read(name)
    exact = "" if wanted.torch.count(".") > 1 else ".*"
    numpy = "numpy<2" if older(wanted.torch, _NUMPY_2_SINCE) else "numpy>=2,<3"
    return {name: f"torch=={wanted.torch}{exact}\ntorchvision\n{numpy}\n".encode()}


def _ours() -> dict[str, bytes]:
    trainer = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "trainer").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    ]
    return _read(*sorted(trainer), _RANK, *_EXIT_FUNCTION)


def _read(*names: str) -> dict[str, bytes]:
    return {name: (ROOT / name).read_bytes() for name in names}


def _digest(files: Mapping[str, bytes], *words: str) -> str:
    parts = [*words, *(f"{name} {hashlib.sha256(content).hexdigest()}" for name, content in sorted(files.items()))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _tar(files: Mapping[str, bytes]) -> bytes:
    """Pack files without times and owners, so that equal files make an equal tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755 if name in _PROGRAMS else 0o644
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
