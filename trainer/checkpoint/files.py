"""Checkpoints as files: written whole or not at all, and trusted only if their hash is right. Free of torch."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, TypeVar

from trainer.errors import UserError

FORMAT = 1
"""Version of the checkpoint's content; only this one is read."""
TEMPORARY = ".partial"
PAUSES = (0.2, 0.5, 1.0)
"""Seconds before what a disk refused is tried again: an error of a moment (ESTALE, EIO) says nothing about a file."""
T = TypeVar("T")


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


def last_resort(run_dir: Path) -> Path:
    """Return the folder in a run's folder for the checkpoint that the checkpoint folder refused."""
    return run_dir / "last-resort"


def reason(error: OSError | MemoryError) -> str:
    """Return why a file could not be read or written, in the system's words."""
    return "not enough memory" if isinstance(error, MemoryError) else error.strerror or str(error)


def patiently(work: Callable[[], T]) -> T:
    """Return what `work` returns, after trying again where the disk or the memory failed it.

    Raises:
        OSError, MemoryError: it failed each time. A file that isn't there is reported at once.
    """
    for pause in PAUSES:
        try:
            return work()
        except FileNotFoundError:
            raise
        except (OSError, MemoryError):
            time.sleep(pause)
    return work()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is whole and on the disk, or absent: temporary file, fsync, rename, fsync of the folder.

    Raises:
        OSError: it could not be written; the temporary file is gone, and an older file of that name untouched.
    """
    temporary = _staged(path, content)
    try:
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _staged(path: Path, content: bytes) -> Path:
    """Return a file beside `path`, on the disk, that only needs to be renamed; none is left if it can't be written."""
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
    return temporary


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _as_json(manifest: Manifest) -> bytes:
    return (json.dumps(asdict(manifest), indent=1) + "\n").encode()


def read(manifest_path: Path) -> tuple[Manifest, bytes]:
    """Return a checkpoint's manifest and content.

    Raises:
        ValueError: it was read, and is no good; the message completes "the checkpoint is …".
        FileNotFoundError: one of its two files isn't there.
        OSError, MemoryError: it could not be read, which says nothing about it.
    """
    described = manifest_path.read_bytes()
    try:
        manifest = Manifest(**json.loads(described))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"without a readable manifest ({error})") from error
    content = manifest_path.with_suffix(".pt").read_bytes()
    if manifest.format != FORMAT:
        raise ValueError(f"of format {manifest.format}, this trainer reads {FORMAT}")
    if len(content) != manifest.bytes:
        raise ValueError(f"{len(content)} bytes long instead of {manifest.bytes}")
    if hashlib.sha256(content).hexdigest() != manifest.sha256:
        raise ValueError("damaged (its SHA-256 is not the manifest's)")
    return manifest, content


class CheckpointFolder:
    """A folder of checkpoints, each a `.pt` file and the manifest that vouches for it."""

    def __init__(self, path: Path, *, last_resort: Path | None = None) -> None:
        """`last_resort`: a second folder, for the checkpoint that must be written when `path` refuses it."""
        self.path = path
        self.last_resort = last_resort

    @property
    def folders(self) -> list[Path]:
        """Where checkpoints may be."""
        return [self.path, *([self.last_resort] if self.last_resort else [])]

    def _found(self, pattern: str) -> list[Path]:
        """Return the files of that pattern, the newest step first. Unlike glob, raise if a folder can't be read."""
        found = [path for folder in self.folders for path in _listed(folder) if fnmatch(path.name, pattern)]
        return sorted(found, key=_age, reverse=True)

    def _manifests(self) -> list[Path]:
        return self._found("step-*.json")

    def newest(self, *, say: Callable[[str], None], set_aside: bool) -> tuple[Path, Manifest, bytes] | None:
        """Return the newest valid checkpoint; None if there never was a whole one.

        Bad ones are reported and, with `set_aside`, renamed to *.bad. Bad is only what was read and is wrong. One
        without its `.pt` is incomplete (perhaps still to be fetched); a `.pt` without a manifest is an interrupted
        write. Neither is touched.

        Raises:
            UserError: exit code 4, if all are bad: the run must never silently start from scratch; or if the newest
                can't be read: it may be good, so neither it nor the steps in it are given up.
        """
        try:
            manifests = self._manifests()
        except OSError as error:
            where = error.filename or self.path
            raise UserError(f"{where} can't be read: {reason(error)}; try again", exit_code=4) from error
        for path in manifests:
            try:
                manifest, content = patiently(lambda path=path: read(path))  # type: ignore[misc]
            except FileNotFoundError as missing:
                say(f"checkpoint {path.stem} is incomplete, {missing.filename} is missing; trying the previous one")
            except (OSError, MemoryError) as error:
                raise UserError(
                    f"the newest checkpoint, {path.with_suffix('.pt')}, can't be read: {reason(error)}; it is left as "
                    "it is: try again, or move it away to continue from the one before",
                    exit_code=4,
                ) from error
            except ValueError as problem:
                aside = "; kept aside as *.bad" if set_aside and _renamed(path, ".bad") else ""
                say(f"checkpoint {path.stem} is {problem}{aside}; trying the previous one")
            else:
                return path.with_suffix(".pt"), manifest, content
        if manifests or self._found("step-*.bad"):
            raise UserError(
                f"no checkpoint in {self.path} is intact; put back a good one, or start afresh: "
                "a job without RESUME, or --resume none",
                exit_code=4,
            )
        return None

    def retire(self) -> int:
        """Rename an earlier run's checkpoints to *.old, so that none is taken for this run's; return how many.

        Raises:
            UserError: exit code 4, if that can't be done.
        """
        try:
            retired = self._manifests()
            for path in retired:
                _rename(path, f".{int(time.time())}.old")
            for path in self._found("step-*.bad"):
                path.rename(path.with_suffix(".bad.old"))
        except OSError as error:
            raise UserError(
                f"the checkpoints of an earlier run in {self.path} can't be renamed: {reason(error)}; "
                "use another --run-dir",
                exit_code=4,
            ) from error
        return len(retired)

    def write(self, content: bytes, facts: Mapping[str, Any], *, keep: int, to: Path | None = None) -> Path:
        """Write a checkpoint, and remove old ones other than the newest `keep` and the best.

        One with a later step is set aside as *.old: the run has counted its steps anew, for another global batch.

        `facts`: the fields of `Manifest` except `sha256`, `bytes` and `format`. `to`: one of `folders`.

        Raises:
            OSError: it could not be written; older ones stay intact, one of the same step too.
        """
        manifest = Manifest(
            sha256=hashlib.sha256(content).hexdigest(), bytes=len(content), format=FORMAT, **dict(facts)
        )
        folder = to or self.path
        path = folder / f"step-{manifest.step:08d}.pt"
        described = path.with_suffix(".json")
        folder.mkdir(parents=True, exist_ok=True)
        staged: list[Path] = []
        try:
            staged.append(_staged(path, content))
            staged.append(_staged(described, _as_json(manifest)))
            # Both are on the disk: what follows needs no room.
            described.unlink(missing_ok=True)  # it must never vouch for other content
            staged[0].replace(path)
            _sync_folder(folder)
            staged[1].replace(described)
            _sync_folder(folder)
        except OSError:
            for each in staged:
                with suppress(OSError):
                    each.unlink(missing_ok=True)
            raise
        self._set_aside_later_than(described)
        self._prune(keep, described)
        return path

    def rate(self, facts: Mapping[str, Any]) -> Path | None:
        """Note in a checkpoint's manifest the test accuracy that is known by now; return its path, if it is here.

        Its content stays as it is: written anew, it would be invalid for a moment, and it may be the only valid one.
        """
        for folder in self.folders:
            described = folder / f"step-{facts['step']:08d}.json"
            with suppress(OSError, ValueError, TypeError):
                manifest = Manifest(**json.loads(described.read_bytes()))
                content = described.with_suffix(".pt")
                if manifest.global_batch == facts["global_batch"] and content.stat().st_size == manifest.bytes:
                    rated = replace(manifest, test_accuracy=facts["test_accuracy"])
                    write_atomically(described, _as_json(rated))
                    return content
        return None

    def expendable(self) -> list[Path]:
        """Return the manifests of what may be removed to make room: the best last, never the newest valid one.

        Nothing newer than that one is named either: what can't be read now may be good.
        """
        manifests = self._manifests()
        for number, path in enumerate(manifests):
            try:
                patiently(lambda path=path: read(path))  # type: ignore[misc]
            except (OSError, MemoryError, ValueError):
                continue
            older = manifests[number + 1 :]
            best = max(older, key=_accuracy, default=None)
            return sorted(older, key=lambda path: (path == best, _age(path)))
        return []

    def _set_aside_later_than(self, newest: Path) -> None:
        """Rename what would be taken for newer; what can't be renamed now stays until the next time."""
        with suppress(OSError):
            for path in self._manifests():
                if _age(path) > _age(newest):
                    _rename(path, f".{int(time.time())}.old")

    def _prune(self, keep: int, newest: Path) -> None:
        """Remove what is not to be kept, never `newest`; what can't be removed now stays until the next time."""
        with suppress(OSError):
            manifests = self._manifests()
            accuracies = {path: _accuracy(path) for path in manifests}
            best = max(manifests, key=lambda path: accuracies[path])
            kept = {newest, *manifests[:keep], best}
            for path in manifests:
                if path not in kept:
                    remove(path)
            whole = {(path.parent, path.stem) for path in kept}
            for path in [*self._found("step-*.pt"), *self._found(f"*{TEMPORARY}")]:
                if (path.parent, path.stem) not in whole:
                    path.unlink()


def _age(path: Path) -> tuple[int, str]:
    """Return what sorts by step, also beyond the eight digits of a usual name."""
    return len(path.name), path.name


def _listed(folder: Path) -> list[Path]:
    try:
        return patiently(lambda: list(folder.iterdir()))
    except FileNotFoundError:
        return []


def remove(manifest_path: Path) -> None:
    """Remove a checkpoint, the manifest first: without it, nobody takes what is left for a whole one.

    Raises:
        OSError: it could not be removed.
    """
    manifest_path.unlink(missing_ok=True)
    manifest_path.with_suffix(".pt").unlink(missing_ok=True)


def _accuracy(manifest_path: Path) -> float:
    try:
        return float(json.loads(manifest_path.read_bytes())["test_accuracy"])
    except (OSError, ValueError, TypeError, KeyError):
        return -1.0


def _renamed(manifest_path: Path, suffix: str) -> bool:
    """Rename a checkpoint's files; return whether the disk allowed it."""
    try:
        _rename(manifest_path, suffix)
    except OSError:
        return False
    return True


def _rename(manifest_path: Path, suffix: str) -> None:
    for path in (manifest_path, manifest_path.with_suffix(".pt")):
        if path.exists():
            path.rename(path.with_name(path.name + suffix))
