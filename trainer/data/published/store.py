"""A data set in the data folder: written whole or not at all, and read only with the right checksums.

The files lie unpacked in torchvision's layout, so that torchvision's own classes find them too. A `<name>.json` at the
top has each file's SHA-256. It is written last: without it, or with a file that differs, the data set counts as absent.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.data.published.catalog import CATALOG
from trainer.data.published.download import Say
from trainer.data.published.formats import Arrays, Images, Raw

WORK_PREFIX = ".fetching-"
Content = NDArray[np.uint8]
"""A file's bytes."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A data set in the data folder, read and verified."""

    arrays: Arrays
    mean: tuple[float, ...]
    """Of the training images, one value per channel, from 0 to 1."""
    std: tuple[float, ...]
    published: bool
    """Whether every file is the published one."""


def read(root: Path, name: str) -> Stored | None:
    """Return the data set below `root`; None if it is incomplete or a file doesn't have its recorded checksum."""
    try:
        record = _record(root, name)
        return Stored(
            arrays=CATALOG[name].parse(dict(verified_files(root, name))),
            mean=tuple(record["mean"]),
            std=tuple(record["std"]),
            published=record["published"],
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def verified_files(root: Path, name: str) -> Iterator[tuple[str, Content]]:
    """Yield each file's name and content, read and verified one at a time.

    Raises:
        OSError, ValueError, KeyError, TypeError: the data set is not there, or differs from its record.
    """
    digests = _record(root, name)["sha256"]
    for file in CATALOG[name].files:
        content = np.fromfile(root / CATALOG[name].folder / file, dtype=np.uint8)
        if hashlib.sha256(content.data).hexdigest() != digests[file]:
            raise ValueError(f"{file} doesn't have its recorded checksum")
        yield file, content


def _record(root: Path, name: str) -> Any:
    return json.loads((root / f"{name}.json").read_text())


def store(root: Path, name: str, contents: Raw, *, work: Path, published: bool) -> None:
    """Write the files and then the record that makes them count, each under its final name only when whole."""
    mean, std = _statistics(CATALOG[name].parse(contents).train_images)
    digests = {file: hashlib.sha256(contents[file]).hexdigest() for file in CATALOG[name].files}
    folder = root / CATALOG[name].folder
    folder.mkdir(parents=True, exist_ok=True)
    for file, digest in digests.items():
        _keep_aside(folder / file, digest)
        if not (folder / file).exists():
            _put(contents[file], folder / file, work)
    record = {"sha256": digests, "mean": mean, "std": std, "published": published}
    _put(json.dumps(record, indent=1).encode(), root / f"{name}.json", work)


def _keep_aside(target: Path, digest: str) -> None:
    """Rename a file of other content: it may be somebody's own rather than a damaged one."""
    if target.exists() and hashlib.sha256(target.read_bytes()).hexdigest() != digest:
        target.replace(target.with_name(f"{target.name}.replaced"))


def _put(content: bytes, target: Path, work: Path) -> None:
    partial = work / target.name
    with partial.open("wb") as stream:
        stream.write(content)
        os.fsync(stream.fileno())
    partial.replace(target)


def _statistics(images: Images) -> tuple[list[float], list[float]]:
    """Return mean and standard deviation of each channel, from 0 to 1, exact, from counts of the 256 levels."""
    levels = np.arange(256) / 255
    mean, std = [], []
    for channel in range(images.shape[1]):
        # A block at a time: bincount makes eight bytes of each byte.
        blocks = (images[start : start + 4096, channel].ravel() for start in range(0, len(images), 4096))
        share = sum(np.bincount(block, minlength=256) for block in blocks) / images[:, channel].size
        mean.append(float(share @ levels))
        std.append(float(np.sqrt(share @ (levels - mean[-1]) ** 2)))
    return mean, std


@contextmanager
def work_folder(root: Path, *, say: Say) -> Iterator[Path]:
    """Make a folder for partial files below `root`, locked against other processes and nodes, and removed at the end.

    If the file system has no locks, continue without one: files that are put in place are whole in any case.
    """
    with (root / ".lock").open("a") as lock:
        if _lock(lock.fileno(), root, say):
            for left_by_killed_process in root.glob(f"{WORK_PREFIX}*"):
                shutil.rmtree(left_by_killed_process, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=root, prefix=WORK_PREFIX, ignore_cleanup_errors=True) as work:
            yield Path(work)


def _lock(lock: int, root: Path, say: Say) -> bool:
    waiting = False
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if not waiting:
                say(f"another process is fetching into {root}; waiting for it")
            waiting = True
            time.sleep(0.1)
        except OSError as error:
            say(f"{root} can't be locked ({error.strerror}); continuing without a lock")
            return False
