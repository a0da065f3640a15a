"""Tell and hand over what a job's program has written into its working folder, on a node.

It runs there as `python3 -IS -c <this source> VERB JOB_FOLDER ...`, so it stands alone: only the standard library of
Python 3.9, and ASCII. Names of files are bytes, in JSON with surrogates.

The working folder is <job>/code while the job runs. When its folder is closed, what is new stays as <job>/work.
<job>/code.placed, which tree_store.py writes, says what was placed there, and how it looked. What looks the same is the
same; what differs in its times alone is read once, and noted.

- list KNOWN: what is new or changed, as one JSON object; if it is what KNOWN (an earlier answer's `mark`) tells, only
  that. It reads no file but code that was touched.
- send: reads rows of `list`; writes each file to standard output: a JSON line, its bytes, a JSON line that says whether
  it stayed the same meanwhile.
- describe: what is new or changed, with hashes, for a job that continues from this one; its progress before.
- keep LEFT: makes `work` of `code`: removes what was placed and has not changed. LEFT is 1 if something of it is
  nowhere else: then the job's folder is never removed.
- merge HASH OWNER: moves what has arrived in inherited-work/HASH into `code`, as its owner's (uid:gid, if we are root).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

MOST_FILES = 10_000
"""What is listed at most, the newest first: a program that writes a hundred thousand must choke nothing."""
LEFT = "left"
"""The file that says that some of the job's files are on this node alone."""
ARRIVED = "inherited-work"
_CHUNK_BYTES = 1 << 20
_CHANGED = -1
"""In the place of a size: it is known to be changed, and need not be read again."""
_CACHES = (b"__pycache__", b".triton")
"""Folders that compilers make again."""
_CACHE_BEGINNINGS = (b"torchinductor_",)
_COMPILED = (b".pyc", b".pyo")


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _top(job: str) -> bytes:
    """Return the job's working folder; empty: there is none."""
    tops = [os.path.join(_bytes(job), name) for name in (b"code", b"work")]
    return next((top for top in tops if os.path.isdir(top) and not os.path.islink(top)), b"")


class Work:
    """The working folder of a job."""

    def __init__(self, job: str) -> None:
        self.job = _bytes(job)
        self.top = _top(job)
        self.left: list[tuple[str, str]] = []
        """What can't be looked at, and why."""
        self._record = os.path.join(self.job, b"code.placed")
        self._placed: dict[str, list[Any]] = {}
        self._noted = False
        try:
            with open(self._record, encoding="ascii") as file:
                self._placed = json.load(file)
            self.known = True
        except (OSError, ValueError):
            self.known = False

    @property
    def there(self) -> bool:
        """Whether there is a folder, and it is known what was placed in it."""
        return bool(self.top) and self.known

    def was(self, path: str) -> str:
        """Return the hash, or the link's target, of what was placed at `path`; empty if nothing was."""
        placed = self._placed.get(path)
        return (placed[0] or placed[1]) if placed else ""

    def changed(self) -> Iterator[tuple[bytes, os.stat_result, str]]:
        """Yield what is new or changed: path, status, and a link's target."""
        for path, status in self._walk(b""):
            if stat.S_ISLNK(status.st_mode):
                with contextlib.suppress(OSError):
                    link = _text(os.readlink(os.path.join(self.top, path)))
                    if self._placed.get(_text(path), ["", ""])[1] != link:
                        yield path, status, link
            elif stat.S_ISREG(status.st_mode) and self._differs(path, status):
                yield path, status, ""

    def note(self) -> None:
        """Write down what was found out about placed files, so that it needn't be found out again."""
        if not self._noted:
            return
        part = self._record + b"." + secrets.token_hex(8).encode()
        with open(part, "w", encoding="ascii") as file:
            json.dump(self._placed, file, separators=(",", ":"))
        os.replace(part, self._record)
        self._noted = False

    def _walk(self, below: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
        folders = [below]
        while folders:
            folder = folders.pop()
            try:
                entries = list(os.scandir(os.path.join(self.top, folder)))
            except FileNotFoundError:
                continue
            except OSError as error:
                self.left.append((_text(folder or b"."), error.strerror or "can't be read"))
                continue
            for entry in entries:
                path = os.path.join(folder, entry.name)
                with contextlib.suppress(FileNotFoundError):
                    if entry.is_dir(follow_symlinks=False):
                        if not _cache(entry.name):
                            folders.append(path)
                    elif not entry.name.endswith(_COMPILED):
                        yield path, entry.stat(follow_symlinks=False)

    def _differs(self, path: bytes, status: os.stat_result) -> bool:
        placed = self._placed.get(_text(path))
        if placed is None or not placed[0] or placed[2] != status.st_size:
            return True
        if placed[3:5] == [status.st_mtime_ns, status.st_ctime_ns]:
            return False
        try:
            same = hashed(os.path.join(self.top, path), lambda _: None) == placed[0]
        except OSError:
            return True  # whoever fetches it says why it can't be read
        placed[2:5] = [status.st_size, status.st_mtime_ns, status.st_ctime_ns] if same else [_CHANGED, 0, 0]
        self._noted = True
        return not same


def _cache(name: bytes) -> bool:
    return name in _CACHES or name.startswith(_CACHE_BEGINNINGS)


def hashed(path: bytes, advance: Callable[[int], None]) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while True:
            data = file.read(_CHUNK_BYTES)
            if not data:
                return digest.hexdigest()
            digest.update(data)
            advance(len(data))


def list_changed(job: str, known: str) -> dict[str, Any]:
    """Return what is new or changed, in rows: path, size, times of its content and status, executable, link, was."""
    began = time.monotonic()
    work = Work(job)
    if not work.there:
        return {"there": False}
    rows: list[Any] = [
        [_text(path), *_look(status), int(bool(status.st_mode & stat.S_IXUSR)), link, work.was(_text(path))]
        for path, status, link in work.changed()
    ]
    with contextlib.suppress(OSError):  # a full disk: then it is found out again
        work.note()
    rows.sort(key=lambda row: (-row[2], row[0]))
    more = rows[MOST_FILES:]
    del rows[MOST_FILES:]
    answer: dict[str, Any] = {
        "there": True,
        "rows": rows,
        "left": work.left,
        "more": [len(more), sum(row[1] for row in more)],
    }
    mark = hashlib.sha256(json.dumps(answer).encode()).hexdigest()
    if mark == known:
        answer = {"there": True, "same": True}
    return {**answer, "mark": mark, "now": time.time(), "took_s": time.monotonic() - began}


def _look(status: os.stat_result) -> list[int]:
    size = status.st_size if stat.S_ISREG(status.st_mode) else 0
    return [size, status.st_mtime_ns, status.st_ctime_ns]


def send(job: str) -> None:
    """Write the files whose rows are on standard input to standard output."""
    out = sys.stdout.buffer
    for path, *look in json.load(sys.stdin):
        try:
            handle = _open_below(job, _bytes(path))
        except OSError as error:
            out.write(_line({"path": path, "why": error.strerror or "can't be read"}))
            continue
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode) or _look(os.fstat(handle)) != look[:3]:
                out.write(_line({"path": path, "why": ""}))
                continue
            out.write(_line({"path": path}))
            left = look[0]
            while left:
                data = file.read(min(left, _CHUNK_BYTES))
                if not data:
                    break
                left -= len(data)
                out.write(data)
            whole = not left and _look(os.fstat(handle)) == look[:3]
        while left:  # it became shorter; the reader was told how much comes
            out.write(b"\0" * min(left, _CHUNK_BYTES))
            left -= min(left, _CHUNK_BYTES)
        out.write(_line({"whole": whole}))
    out.flush()


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _open_below(job: str, path: bytes) -> int:
    """Open a file of the working folder without following any link: a program may make one at any moment."""
    words = path.split(b"/")
    if any(word in (b"", b".", b"..") for word in words):
        raise OSError(errno.EINVAL, "no name of a file")
    handle = os.open(_top(job), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    for place, word in enumerate(words):
        last = place == len(words) - 1
        flags = os.O_NOFOLLOW | os.O_NONBLOCK | (0 if last else os.O_DIRECTORY)
        try:
            inner = os.open(word, os.O_RDONLY | flags, dir_fd=handle)
        finally:
            os.close(handle)
        handle = inner
    return handle


def describe(job: str) -> dict[str, Any]:
    """Return what is new or changed with hashes, as rows of a manifest; and whose folder this is."""
    work = Work(job)
    known: dict[str, Any] = {"there": work.there, "plan": None, "node": ""}
    for key, parse in (("plan", json.loads), ("node", str)):
        with (
            contextlib.suppress(OSError, ValueError),
            open(os.path.join(job, "plan.json" if key == "plan" else key), encoding="utf-8") as file,
        ):
            known[key] = parse(file.read())
    if not work.there:
        return known
    found = list(work.changed())
    total, done, said_at = sum(status.st_size for _, status, _ in found), 0, time.monotonic()

    def advance(count: int) -> None:
        nonlocal done, said_at
        done += count
        if time.monotonic() - said_at >= 1:
            said_at = time.monotonic()
            os.write(1, _line({"doing": "checked", "done": done, "of": total}))

    files: list[Any] = []
    problems = [f"{path} ({why})" for path, why in work.left]
    for path, status, link in found:
        if link:
            if _leads_out(path, _bytes(link)):
                problems.append(f"{_text(path)} (a link that leads out of the folder)")
            else:
                files.append([_text(path), 0o644, 0, "", link])
            continue
        try:
            digest = hashed(os.path.join(work.top, path), advance)
        except OSError as error:
            problems.append(f"{_text(path)} ({error.strerror})")
            continue
        files.append([_text(path), 0o755 if status.st_mode & stat.S_IXUSR else 0o644, status.st_size, digest, ""])
    replaced = {row[0]: work.was(row[0]) for row in files if work.was(row[0])}
    changed = max((status.st_mtime for _, status, _ in found), default=0.0)
    return {
        **known, "folder": _text(work.top), "files": files, "was": replaced, "changed": changed, "problems": problems
    }  # fmt: skip


def _leads_out(path: bytes, target: bytes) -> bool:
    end = os.path.normpath(os.path.join(os.path.dirname(path), target))
    return end.startswith((b"/", b"../")) or end == b".."


def keep(job: str, left: str) -> dict[str, Any]:
    """Leave of the working folder only what is new or changed, called `work`."""
    mark = os.path.join(job, LEFT)
    if left:
        with open(mark, "w"):
            pass
    elif os.path.exists(mark):
        os.unlink(mark)
    work = Work(job)
    if not work.there or os.path.basename(work.top) != b"code":
        return {}
    stays = {path for path, _, _ in work.changed()}
    work.note()
    # By handles, not by paths: a program that still runs could put a link in the place of a folder.
    for folder, folders, files, handle in os.fwalk(work.top, topdown=False):
        for name in files:
            if os.path.normpath(os.path.join(os.path.relpath(folder, work.top), name)) not in stays:
                os.unlink(name, dir_fd=handle)
        for name in folders:
            with contextlib.suppress(OSError):  # not empty; a link, which is looked at below
                os.rmdir(name, dir_fd=handle)
            path = os.path.normpath(os.path.join(os.path.relpath(folder, work.top), name))
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISLNK(os.lstat(name, dir_fd=handle).st_mode) and path not in stays:
                    os.unlink(name, dir_fd=handle)
    if os.listdir(work.top):
        os.rename(work.top, os.path.join(work.job, b"work"))
    else:
        os.rmdir(work.top)
    return {}


def merge(job: str, tree_hash: str, owner: str) -> dict[str, Any]:
    """Move the files of an earlier job's working folder into this one's."""
    arrived = os.path.join(_bytes(job), _bytes(ARRIVED))
    whole, top = os.path.join(arrived, tree_hash.encode()), os.path.join(_bytes(job), b"code")
    uid, gid = map(int, owner.split(":"))
    for folder, _, files in os.walk(whole):
        os.chmod(folder, 0o700)
        here = os.path.normpath(os.path.join(top, os.path.relpath(folder, whole)))
        if not os.path.isdir(here):
            os.mkdir(here, 0o700)
            if os.geteuid() == 0:
                os.chown(here, uid, gid)
        for name in files:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                os.chmod(path, os.stat(path).st_mode & 0o700 | 0o600)
            if os.geteuid() == 0:
                os.chown(path, uid, gid, follow_symlinks=False)
            os.replace(path, os.path.join(here, name))
        # A link to a folder is among the folders; os.walk does not follow it.
        for name in [each for each in os.listdir(folder) if os.path.islink(os.path.join(folder, each))]:
            os.replace(os.path.join(folder, name), os.path.join(here, name))
    shutil.rmtree(arrived)
    return {"complete": True}


VERBS: dict[str, Callable[..., dict[str, Any]]] = {
    "list": list_changed,
    "describe": describe,
    "keep": keep,
    "merge": merge,
}


def main(words: list[str]) -> int:
    """Run the verb in `words`; return the exit code."""
    os.umask(0o077)
    with contextlib.suppress(OSError):
        os.nice(19)  # the ranks need the cores
    try:
        if words[0] == "send":
            send(*words[1:])
        else:
            # In one go, where a pipe takes less at a time.
            with os.fdopen(os.dup(1), "wb") as out:
                out.write(_line(VERBS[words[0]](*words[1:])))
    except BrokenPipeError:
        os._exit(1)  # nobody reads any more
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, "")
        where = _text(os.fsencode(error.filename or words[1]))
        if words[0] in ("merge", "describe"):  # their caller reads its errors from the same stream
            os.write(1, _line({"error": error.strerror, "path": where, "errno": code}))
        else:
            print(f"{where.encode('ascii', 'backslashreplace').decode()}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
