"""Create, describe and close a job's folder on a node. Runs there, as `python3 -c <this file> VERB …`.

It stands alone: only the standard library of Python 3.9, no sibling imports. It prints one JSON object; if it refuses,
it prints a line on standard error and exits with 3.

<job_dir>/<name>/  plan.json · node (its name in the plan) · token (of the launcher that created it)
                   run/ (RUN_DIR) · home/ · code/ (the user's) · secrets · ours/ (beside a foreign image)
                   work/ (once it has ended: what the program has written into code/) · code.placed (what it was)
                   left (some of work/ is nowhere else)
                   started (its container was about to be) · stopped (somebody stopped it)
                   summary.json, log (at its end) · collected (its results were fetched, its end is recorded)
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import tarfile
import time
from collections.abc import Callable
from typing import Any

KEPT = 10
"""How many jobs that ended, and whose results were fetched, keep their folders; older ones are removed."""
_OF_THE_RUN = ("code", "home", "ours", "ours.placed", "secrets")
"""What nobody needs once a job has ended."""
_TAIL = 1 << 16
_LEFT = "left"
"""The file that says that some of what the job wrote is on this node alone: its folder stays."""
_PLACED = "code.placed"
_LAUNCHER = "token"
"""The file that says which launcher a folder belongs to."""
_INCOMING = ".closing"
"""Where the record of a job's end is, until all of it is on the disk."""
_SEEN = ("succeeded", "failed", "stopped")
"""States of an end that somebody has seen."""


class RefusedError(Exception):
    """The request is refused; the message says why, and what to do."""


def prepare(job_dir: str, name: str, owner: str, data_dir: str, token: str, earlier: str = "") -> dict[str, Any]:
    """Create the job's folder, with the files of the tar on standard input in it.

    Args:
        owner: `uid:gid`.
        token: says which launcher the folder belongs to, until the job runs.
        earlier: the job whose checkpoint this one continues from: its folder stays.

    Raises:
        RefusedError: the job exists already, or the folder of jobs doesn't.
    """
    folder = os.path.join(job_dir, name)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        raise RefusedError(f"there is a job {name} on this node already; choose another NAME") from None
    except FileNotFoundError:
        raise RefusedError(f"{job_dir} does not exist; make provision creates it") from None
    try:
        for below in ("run", "run/checkpoints", "home"):
            os.makedirs(os.path.join(folder, below), 0o700)
        os.makedirs(os.path.join(job_dir, ".cache"), 0o700, exist_ok=True)
        with open(os.path.join(folder, _LAUNCHER), "w") as file:
            file.write(token)
        own = os.path.join(data_dir, "own")  # mounted in every container
        os.makedirs(own, 0o700, exist_ok=True)
        _unpack(folder)
        _give(own, owner, deep=False)
        _give(folder, owner)
        _give(os.path.join(job_dir, ".cache"), owner, deep=False)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    _prune(job_dir, {name, earlier})
    return {}


def discard(job_dir: str, name: str, token: str) -> dict[str, Any]:
    """Remove the folder of a job that never ran, if it is the caller's own."""
    folder = os.path.join(job_dir, name)
    try:
        with open(os.path.join(folder, _LAUNCHER)) as file:
            ours = file.read() == token
    except OSError:
        ours = False
    if ours:
        shutil.rmtree(folder, ignore_errors=True)
    return {}


def mark(job_dir: str, name: str, what: str) -> dict[str, Any]:
    """Create an empty file `what` in the job's folder."""
    folder = os.path.join(job_dir, name)
    if os.path.isdir(folder):
        with open(os.path.join(folder, what), "w"):
            pass
    return {}


def close(job_dir: str, name: str) -> dict[str, Any]:
    """Close a job that has ended and whose results were fetched.

    First the tar's files (summary, log), the record of its end, are put on the disk. Only if that went well, what only
    the run needed is removed. A record stays if it knows more than the new one.
    """
    folder = os.path.join(job_dir, name)
    if not os.path.isdir(folder):
        return {}
    incoming = os.path.join(folder, _INCOMING)
    shutil.rmtree(incoming, ignore_errors=True)  # left by a connection that broke
    try:
        os.mkdir(incoming, 0o700)
        _unpack(incoming, synced=True)
        known, new = (_json(os.path.join(top, "summary.json")) for top in (folder, incoming))
        for each in () if knows_more(known, new) else sorted(os.listdir(incoming)):
            os.replace(os.path.join(incoming, each), os.path.join(folder, each))
        _sync(folder)
    finally:
        shutil.rmtree(incoming, ignore_errors=True)
    for below in _OF_THE_RUN:
        path = os.path.join(folder, below)
        if below == "code" and _has(folder, _PLACED):
            continue  # work_folder.py knows what of it is a result
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        elif os.path.lexists(path):
            os.unlink(path)
    return mark(job_dir, name, "collected")


def knows_more(one: Any, other: Any) -> bool:
    """Return whether the summary `one` knows more of a job's end than `other`; either may be None, or no summary."""
    return _knowledge(one) > _knowledge(other)


def _knowledge(summary: Any) -> int:
    state = summary.get("state") if isinstance(summary, dict) else None
    return 2 if state in _SEEN else int(state is not None)


def jobs(job_dir: str) -> dict[str, Any]:
    """Describe every job that has a folder here."""
    known = {}
    for name in sorted(os.listdir(job_dir)) if os.path.isdir(job_dir) else []:
        folder = os.path.join(job_dir, name)
        if name.startswith(".") or not _has(folder, "plan.json"):
            continue
        known[name] = {
            "node": _text(os.path.join(folder, "node")),
            "made_at": os.stat(os.path.join(folder, "plan.json")).st_mtime,
            "started": _has(folder, "started"),
            "collected": _has(folder, "collected"),
            "stopped": _has(folder, "stopped"),
            "summary": _json(os.path.join(folder, "summary.json")),
            "last": _last_record(os.path.join(folder, "run", "metrics.jsonl")),
        }
    return {"jobs": known, "time": time.time()}


def marks(job_dir: str, name: str, below: str) -> dict[str, Any]:
    """Return what changes with any change of a file, for all files below run/<below>; paths are below run/.

    A file's time of change can't be set back, as its modification time can; and SFTP knows neither it nor fractions.
    """
    top = os.path.join(job_dir, name, "run")
    found = {}
    for folder, _, files in os.walk(os.path.join(top, below)):
        for path in (os.path.join(folder, file) for file in files):
            try:
                status = os.lstat(path)
            except FileNotFoundError:
                continue
            found[os.path.relpath(path, top)] = [status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
    return {"marks": found}


def _has(folder: str, name: str) -> bool:
    return os.path.exists(os.path.join(folder, name))


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError):
        return ""


def _json(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def _last_record(path: str) -> Any:
    """The last whole line of a metrics.jsonl that has a step."""
    try:
        # The job wrote it, so it may be anything; opening a pipe would block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL))
            lines = file.read().split(b"\n")
    except OSError:
        return None
    for line in reversed(lines):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and type(record.get("step")) is int:
            return record
    return None


def _unpack(folder: str, synced: bool = False) -> None:
    """Write the tar's files and links, only below `folder`, and never through a link; `synced`: onto the disk."""
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as tar:
        for member in tar:
            path = os.path.normpath(member.name)
            leads = os.path.normpath(os.path.join(os.path.dirname(path), member.linkname)) if member.issym() else ""
            supported = member.isfile() or member.isdir() or member.issym()
            if path.startswith(("/", "..")) or not supported or leads.startswith(("/", "..")):
                raise RefusedError(f"{member.name!r} can't be put into a job's folder")
            target = os.path.join(folder, path)
            if member.isdir():
                os.makedirs(target, 0o700, exist_ok=True)
                continue
            os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
            if (
                os.path.realpath(os.path.dirname(target))
                != os.path.realpath(folder) + os.path.dirname(target)[len(folder) :]
            ):
                raise RefusedError(f"{member.name!r} leads through a link")
            if member.issym():
                os.symlink(member.linkname, target)
                continue
            source = tar.extractfile(member)
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, member.mode & 0o777)
            with os.fdopen(descriptor, "wb") as file:
                if source is not None:
                    shutil.copyfileobj(source, file, 1 << 20)
                if synced:
                    file.flush()
                    os.fsync(descriptor)


def _sync(folder: str) -> None:
    """Wait until the folder's names are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _give(top: str, owner: str, deep: bool = True) -> None:
    """Give it to the container's user, unless that is who we are."""
    uid, gid = (int(part) for part in owner.split(":"))
    if os.geteuid() != 0 or uid == 0:
        return
    os.chown(top, uid, gid)
    for folder, folders, files in os.walk(top) if deep else ():
        for name in folders + files:
            os.lchown(os.path.join(folder, name), uid, gid)


def _prune(job_dir: str, needed: set[str]) -> None:
    ended = []
    for name in os.listdir(job_dir):
        folder = os.path.join(job_dir, name)
        if _has(folder, _LEFT):
            continue
        if name not in needed and not name.startswith(".") and _has(folder, "collected"):
            ended.append((os.stat(os.path.join(folder, "collected")).st_mtime, folder))
    for _, folder in sorted(ended)[:-KEPT]:
        shutil.rmtree(folder, ignore_errors=True)


VERBS: dict[str, Callable[..., dict[str, Any]]] = {
    "prepare": prepare,
    "discard": discard,
    "mark": mark,
    "close": close,
    "jobs": jobs,
    "marks": marks,
}


def main(words: list[str]) -> int:
    """Run the verb in `words`; return the exit code."""
    try:
        print(json.dumps(VERBS[words[0]](*words[1:])))
    except RefusedError as error:
        print(error, file=sys.stderr)
        return 3
    except OSError as error:
        print(f"{error.filename or words[1]}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
