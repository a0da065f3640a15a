"""Describe what a job has left to continue from. Runs on a node, as `python3 -IS -c <this file> VERB JOB_FOLDER`.

The operator's side imports it, too, for the copy there. It stands alone: only the standard library of Python 3.9, and
ASCII. As `tree_store.py`, it prints one JSON object a line: its progress once a second, and last what it found.

- newest: the bundled trainer's newest checkpoint whose content is what its manifest says; older ones are looked at only
  if newer ones are damaged.
- all: everything in the folder of checkpoints, which for a user's script belongs together.

What can't be read is an error, and never taken for damaged: it may be there again in a moment.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_CHUNK_BYTES = 1 << 20
_LAST_RESORT = b"last-resort"
"""The folder beside the checkpoints that has the last one, if theirs refused it (trainer/checkpoint/files.py)."""
_MANIFEST = re.compile(rb"step-(\d+)\.json")
_OURS = re.compile(rb"\.fetching-.*|step-.*\.(bad|old|partial)")
"""Names of what is only in part here, and of checkpoints that the trainer has set aside."""


Row = tuple[str, int, int, str, str]
"""The fields of `tree_store.Entry`; the path is below the folder of checkpoints."""


class Found(NamedTuple):
    """What a job can be continued from; without files: nothing."""

    files: list[Row]
    step: int | None
    """Of the bundled trainer's: the optimizer step."""
    changed: float
    """When the newest of the files was written, unix seconds."""
    problems: list[str]
    """What was passed over, and why."""
    folder: str
    """Where the files are."""


Pace = Callable[[int, int], None]
"""Called with bytes that were read, and how many there are in all."""


def _quietly(_done: int, _total: int) -> None:
    pass


def newest(folder: str, pace: Pace = _quietly) -> Found:
    """Return the bundled trainer's newest checkpoint that is whole: in `folder`, or beside it if that refused it."""
    own = os.fsencode(folder)
    problems: list[str] = []
    for name, top in _manifests(own, os.path.join(os.path.dirname(own), _LAST_RESORT)):
        try:
            return _checkpoint(top, name, problems, pace)
        except ValueError as problem:
            problems.append(f"checkpoint {_text(name[: -len(b'.json')])} is {problem}")
    return Found([], None, 0.0, problems, folder)


def everything(folder: str, pace: Pace = _quietly) -> Found:
    """Return all files, links and empty folders below `folder`, except what is half there or was set aside."""
    top = os.fsencode(folder)
    files: list[Row] = []
    problems: list[str] = []
    changed, done = 0.0, 0
    status = {path: os.lstat(os.path.join(top, path)) for path in _below(top, b"")}
    total = sum(each.st_size for each in status.values() if stat.S_ISREG(each.st_mode))

    def advance(count: int) -> None:
        nonlocal done
        done += count
        pace(done, total)

    for path in status:
        if stat.S_ISREG(status[path].st_mode):
            size, digest = _hashed(os.path.join(top, path), advance)
            files.append((_text(path), _mode(status[path]), size, digest, ""))
            changed = max(changed, status[path].st_mtime)
        elif stat.S_ISLNK(status[path].st_mode):
            target = os.readlink(os.path.join(top, path))
            if _leads_out(path, target):
                problems.append(f"{_text(path)} is left out: a link that leads out of the folder of checkpoints")
            else:
                files.append((_text(path), 0o644, 0, "", _text(target)))
        elif stat.S_ISDIR(status[path].st_mode):
            files.append((_text(path), 0o644, 0, "", ""))
    return Found(files if changed else [], None, changed, problems, folder)


def _manifests(*tops: bytes) -> list[tuple[bytes, bytes]]:
    """Return the names of all manifests with their folders, the newest first."""
    steps: dict[tuple[bytes, bytes], int] = {}
    for top in tops:
        try:
            names = os.listdir(top)
        except FileNotFoundError:
            continue
        steps.update({(name, top): int(match[1]) for name in names for match in [_MANIFEST.fullmatch(name)] if match})
    return sorted(steps, key=lambda each: (steps[each], each), reverse=True)


def _checkpoint(top: bytes, name: bytes, problems: list[str], pace: Pace) -> Found:
    """Read a checkpoint.

    Raises:
        ValueError: it is damaged; the message completes "the checkpoint is ...".
    """
    manifest, content = os.path.join(top, name), os.path.join(top, name[: -len(b".json")] + b".pt")
    try:
        if not stat.S_ISREG(os.stat(manifest).st_mode):
            raise ValueError("it is no file")  # opening a pipe would block
        with open(manifest, "rb") as file:
            text = file.read()
        facts = json.loads(text)
        step, sha256, size = int(facts["step"]), str(facts["sha256"]), int(facts["bytes"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"without a manifest that can be read ({error})") from None
    try:
        status = os.stat(content)
    except FileNotFoundError:
        raise ValueError("without its content, a .pt file") from None
    if status.st_size != size:
        raise ValueError(f"{status.st_size} bytes long instead of {size}")
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        pace(done, size)

    if _hashed(content, advance)[1] != sha256:
        raise ValueError("damaged (its SHA-256 is not the manifest's)")
    entries = [
        (_text(name), 0o644, len(text), hashlib.sha256(text).hexdigest(), ""),
        (_text(os.path.basename(content)), 0o644, size, sha256, ""),
    ]
    return Found(entries, step, status.st_mtime, problems, _text(top))


def _below(top: bytes, path: bytes) -> Iterator[bytes]:
    """Yield what is below, folders only if they are empty."""
    try:
        names = sorted(os.listdir(os.path.join(top, path)))
    except FileNotFoundError:
        if path:
            raise
        return
    for name in names:
        each = os.path.join(path, name)
        mode = os.lstat(os.path.join(top, each)).st_mode
        if _OURS.fullmatch(name):
            continue
        if stat.S_ISDIR(mode) and os.listdir(os.path.join(top, each)):
            yield from _below(top, each)
        else:
            yield each


def _hashed(path: bytes, advance: Callable[[int], None]) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while True:
            data = file.read(_CHUNK_BYTES)
            if not data:
                return size, digest.hexdigest()
            digest.update(data)
            size += len(data)
            advance(len(data))


def _mode(status: os.stat_result) -> int:
    return 0o755 if status.st_mode & stat.S_IXUSR else 0o644


def _leads_out(path: bytes, target: bytes) -> bool:
    end = os.path.normpath(os.path.join(os.path.dirname(path), target))
    return end.startswith((b"/", b"../")) or end == b".."


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


VERBS = {"newest": newest, "all": everything}


def describe(verb: str, folder: str) -> dict[str, Any]:
    """Return what is known of the job in `folder`: its plan, its name for this node, and what it has left."""
    said_at = time.monotonic()

    def pace(done: int, total: int) -> None:
        nonlocal said_at
        if time.monotonic() - said_at >= 1:
            said_at = time.monotonic()
            _say({"doing": "checked", "done": done, "of": total})

    known: dict[str, Any] = {"there": os.path.isdir(folder), "plan": None, "node": ""}
    if known["there"]:
        for key, name, parse in (("plan", "plan.json", json.loads), ("node", "node", str)):
            try:
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    known[key] = parse(file.read())
            except (FileNotFoundError, ValueError):
                continue
        known.update(VERBS[verb](os.path.join(folder, "run", "checkpoints"), pace)._asdict())
    return known


def _say(message: dict[str, Any]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def main(words: list[str]) -> int:
    """Run the verb in `words`; return the exit code."""
    try:
        answer = json.dumps(describe(*words)).encode() + b"\n"
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, "")
        _say({"error": error.strerror, "path": _text(os.fsencode(error.filename or words[1])), "errno": code})
        return 1
    with os.fdopen(1, "wb") as out:
        out.write(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
