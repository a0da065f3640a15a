"""Checkpoints as files: written whole or not at all, and trusted only if their hash is right. Free of torch."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainer.errors import UserError

FORMAT = 1
"""Version of the checkpoint's content; only this one is read."""
TEMPORARY = ".partial"


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a run is, and what it trains."""

    step: int
    """Optimizer steps done."""
    epoch: int
    """Epochs completed."""
    position: int
    """Global batches done in the current epoch."""
    world_size: int
    global_batch: int
    dataset: str
    model: str
    optimizer: str
    torch: str
    test_accuracy: float | None
    """0..1, of exactly these parameters; None if they were not evaluated."""


@dataclass(frozen=True, kw_only=True)
class Manifest(Progress):
    """The content of `step-00000940.json`, about `step-00000940.pt`."""

    sha256: str
    bytes: int
    format: int


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is whole and on the disk, or absent: temporary file, fsync, rename, fsync of the folder.

    Raises:
        OSError: it could not be written; the temporary file is gone, and an older file of that name untouched.
    """
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(manifest_path: Path) -> tuple[Manifest, bytes]:
    """Return a checkpoint's manifest and content.

    Raises:
        ValueError: the checkpoint is no good; the message completes "the checkpoint is …".
    """
    try:
        manifest = Manifest(**json.loads(manifest_path.read_bytes()))
        content = manifest_path.with_suffix(".pt").read_bytes()
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"unreadable ({error})") from error
    if manifest.format != FORMAT:
        raise ValueError(f"of format {manifest.format}, this trainer reads {FORMAT}")
    if len(content) != manifest.bytes:
        raise ValueError(f"{len(content)} bytes long instead of {manifest.bytes}")
    if hashlib.sha256(content).hexdigest() != manifest.sha256:
        raise ValueError("damaged (its SHA-256 is not the manifest's)")
    return manifest, content


class CheckpointFolder:
    """A folder of checkpoints, each a `.pt` file and the manifest that vouches for it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _manifests(self) -> list[Path]:
        return sorted(self.path.glob("step-*.json"), reverse=True)

    def newest(self, *, say: Callable[[str], None], set_aside: bool) -> tuple[Path, Manifest, bytes] | None:
        """Return the newest valid checkpoint; None if there never was a whole one.

        Bad ones are reported and, with `set_aside`, renamed to *.bad. A `.pt` without a manifest is an interrupted
        write, not a checkpoint.

        Raises:
            UserError: exit code 4, if all are bad: the run must never silently start from scratch.
        """
        manifests = self._manifests()
        for path in manifests:
            try:
                manifest, content = read(path)
            except ValueError as problem:
                kept = "; kept aside as *.bad" if set_aside else ""
                say(f"checkpoint {path.stem} is {problem}{kept}; trying the previous one")
                if set_aside:
                    _rename(path, ".bad")
            else:
                return path.with_suffix(".pt"), manifest, content
        if manifests or any(self.path.glob("step-*.bad")):
            raise UserError(
                f"no checkpoint in {self.path} is intact; put back a good one, or start afresh: "
                "a job without RESUME, or --resume none",
                exit_code=4,
            )
        return None

    def retire(self) -> int:
        """Rename an earlier run's checkpoints to *.old, so that none is taken for this run's; return how many."""
        retired = self._manifests()
        for path in retired:
            _rename(path, f".{int(time.time())}.old")
        for path in self.path.glob("step-*.bad"):
            path.rename(path.with_suffix(".bad.old"))
        return len(retired)

    def write(self, content: bytes, facts: Mapping[str, Any], *, keep: int) -> Path:
        """Write a checkpoint, and remove old ones other than the newest `keep` and the best.

        `facts`: the fields of `Manifest` except `sha256`, `bytes` and `format`.

        Raises:
            OSError: it could not be written; older ones stay intact.
        """
        manifest = Manifest(
            sha256=hashlib.sha256(content).hexdigest(), bytes=len(content), format=FORMAT, **dict(facts)
        )
        path = self.path / f"step-{manifest.step:08d}.pt"
        self.path.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".json").unlink(missing_ok=True)  # it must never vouch for other content
        write_atomically(path, content)
        write_atomically(path.with_suffix(".json"), (json.dumps(asdict(manifest), indent=1) + "\n").encode())
        self._prune(keep)
        return path

    def _prune(self, keep: int) -> None:
        manifests = self._manifests()
        accuracies = {path: _accuracy(path) for path in manifests}
        best = max(manifests, key=lambda path: accuracies[path])
        kept = {*manifests[:keep], best}
        for path in manifests:
            if path not in kept:
                path.unlink()
                path.with_suffix(".pt").unlink(missing_ok=True)
        whole = {path.stem for path in kept}
        for path in [*self.path.glob("step-*.pt"), *self.path.glob(f"*{TEMPORARY}")]:
            if path.stem not in whole:
                path.unlink()


def _accuracy(manifest_path: Path) -> float:
    try:
        return float(json.loads(manifest_path.read_bytes())["test_accuracy"])
    except (OSError, ValueError, TypeError, KeyError):
        return -1.0


def _rename(manifest_path: Path, suffix: str) -> None:
    for path in (manifest_path, manifest_path.with_suffix(".pt")):
        if path.exists():
            path.rename(path.with_name(path.name + suffix))
