"""Store trees of files (code, data, a checkpoint) on a node by content; define how a tree is described and sent.

It runs on nodes as `python3 -IS -c <this source> <verb> ...`, so it stands alone: only the standard library, Python
3.9, and ASCII (with the locale C, Python accepts no other words). It has to be one file, however long: it is sent as
the text of a command, to the nodes and from node to node. It reads standard input, and reports on standard output, one
JSON object a line. It reports once a second while it works, so that it ends (nobody reads any more) when the operator's
connection does.

- make STORE TARGET OWNER: reads a manifest, then blobs to the end; keeps the blobs; builds a copy of the tree at
  TARGET, or reports which blobs are missing. It is one verb, so that an unchanged tree costs one round trip, a changed
  one two. TARGET.placed tells what was placed: work_folder.py compares with it.
- have OWN HASH: reports whether the data is there.
- want OWN HASH: reads a manifest; checks what an earlier transfer left; reports what is missing of the data.
- take OWN HASH: reads a manifest, then pieces; completes the data.
- fetch OWN HASH [TARGET TOP PATIENCE]...: reads a manifest and the command that starts `send`, in a form that no login
  shell changes; completes the data by it on the first TARGET, over SSH; where that fails it goes on by the next. If a
  TARGET is empty, it is this node.
- send: reads where the tree is, its hash, and a patience in seconds; then a manifest and a list of what is wanted of
  it; writes the pieces to standard output. Of a tree that is still arriving there it sends what comes; it waits that
  long for it to begin. All of it is read, so that one command serves every source.
- adopt OWN HASH TARGET OWNER: moves the data into the empty folder TARGET, as its owner's, who may change it.

A block (manifest, list, command) is its length in digits, a newline, its bytes. A blob is `sha256 size`, a newline, its
bytes. A piece is `index offset length`, a newline, its bytes; `end` follows the last. Names of files are bytes.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Container, Iterable, Iterator
from typing import IO, Any, NamedTuple

CHUNK_BYTES = 1 << 20
END = b"end\n"
PLAIN, EXECUTABLE = 0o644, 0o755
_CLOSED, _OPEN = 0o700, 0o755
_UNUSED_S = 14 * 86400
_PRUNE_S = 86400
_SILENCE_S = 120
_POLL_S = 0.05
_SSH = (
    *("ssh", "-T", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ClearAllForwardings=yes"),
    # A source that falls silent must not block us for ever.
    *("-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
)


class Entry(NamedTuple):
    """A file, a symbolic link (`link` isn't empty), or an empty folder (neither hash nor link)."""

    path: str
    """Below the tree's root, with `/`; bytes that are not UTF-8 are surrogates."""
    mode: int
    size: int = 0
    sha256: str = ""
    link: str = ""

    @property
    def name(self) -> bytes:
        """The path's bytes."""
        return encoded(self.path)


class SourceError(Exception):
    """The node that data is fetched from can't be reached, or can't send it."""


def encoded(path: str) -> bytes:
    """Return the bytes that a file system knows `path` by."""
    return path.encode("utf-8", "surrogateescape")


def manifest_of(entries: Iterable[Entry]) -> bytes:
    """Return a tree's description, the same bytes on every machine; its SHA-256 is the tree's hash."""
    return json.dumps(sorted(entries, key=lambda entry: entry.name), separators=(",", ":")).encode()


def parse(manifest: bytes) -> tuple[Entry, ...]:
    """Read a manifest, trusting nothing in it.

    Raises:
        ValueError: it is no manifest, or would write outside its folder.
    """
    try:
        entries = tuple(Entry(*row) for row in json.loads(manifest))
        canonical = manifest_of(entries) == manifest
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"no manifest: {error}") from error
    leaves = {entry.path for entry in entries}
    if not canonical or len(leaves) < len(entries):
        raise ValueError("no manifest: not in its canonical form")
    for entry in entries:
        problem = _problem(entry, leaves)
        if problem:
            raise ValueError(f"{entry.path!r} in a manifest: {problem}")
    return entries


def _problem(entry: Entry, leaves: set[str]) -> str:
    if [type(field) for field in entry] != [str, int, int, str, str]:
        return "not the fields of an entry"
    words = entry.path.split("/")
    if any(word in ("", ".", "..") for word in words) or "\0" in entry.path:
        return "not a path below a folder"
    if any("/".join(words[:count]) in leaves for count in range(1, len(words))):
        return "inside something that is no folder"
    if entry.mode not in (PLAIN, EXECUTABLE) or entry.size < 0:
        return "impossible mode or size"
    if entry.sha256 and (entry.link or not re.fullmatch("[0-9a-f]{64}", entry.sha256)):
        return "no hash"
    if not entry.sha256 and entry.size:
        return "a size without a file"
    target = os.path.normpath(os.path.join(os.path.dirname(entry.path), entry.link))
    if entry.link and (target.startswith(("/", "../")) or target == ".." or "\0" in entry.link):
        return "a link that leads outside"
    return ""


def block(data: bytes) -> bytes:
    """Return `data` with its length before it."""
    return b"%d\n" % len(data) + data


def read_block(stream: IO[bytes]) -> bytes:
    """Read one `block`, and return its data.

    Raises:
        EOFError: the stream ended early.
    """
    return b"".join(_exactly(stream, int(_line(stream))))


def _line(stream: IO[bytes]) -> bytes:
    line = stream.readline(200)
    if not line.endswith(b"\n"):
        raise EOFError("the connection ended early")
    return line


def _exactly(stream: IO[bytes], size: int) -> Iterator[bytes]:
    while size:
        data = stream.read(min(size, CHUNK_BYTES))
        if not data:
            raise EOFError("the connection ended early")
        size -= len(data)
        yield data


def say(**fields: Any) -> None:
    """Report to the operator's side."""
    os.write(1, json.dumps(fields).encode() + b"\n")


class Pace:
    """Reports the progress, at most once a second."""

    def __init__(self, doing: str, total: int) -> None:
        self._doing, self._total = doing, total
        self._done, self._said_at = 0, time.monotonic()

    def add(self, count: int) -> None:
        """Count more bytes as done."""
        self._done += count
        if time.monotonic() - self._said_at >= 1:
            self._said_at = time.monotonic()
            say(doing=self._doing, done=self._done, of=self._total)


# Code: a store of blobs, and copies made of them.


def make(store: bytes, target: bytes, owner: str, stream: IO[bytes]) -> None:
    """Store the blobs that arrive, then build the tree at `target`, unless some are missing.

    Args:
        owner: uid:gid that the copy gets if we are root, so that a job that is not root can write there.
    """
    entries = parse(read_block(stream))
    blobs = os.path.join(store, b"blobs")
    os.makedirs(blobs, exist_ok=True)
    with open(os.path.join(store, b"lock"), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)  # nothing is pruned meanwhile
        _store(stream, blobs, {entry.sha256.encode(): entry.path for entry in entries})
        missing = sorted({entry.sha256 for entry in entries if entry.sha256 and not _there(blobs, entry)})
        if not missing:
            _build(entries, blobs, target, owner)
    say(missing=missing)
    _prune(store, blobs)


def _store(stream: IO[bytes], blobs: bytes, paths: dict[bytes, str]) -> None:
    for head in iter(lambda: stream.readline(200), b""):
        name, size = head.split()
        if not paths.get(name):
            raise ValueError("a blob that is not of the tree")
        part, digest = os.path.join(blobs, b"%b.%d.part" % (name, os.getpid())), hashlib.sha256()
        try:
            with open(part, "xb") as file:
                for data in _exactly(stream, int(size)):
                    digest.update(data)
                    file.write(data)
            if digest.hexdigest().encode() != name:
                raise ValueError(f"{paths[name]!r} changed while it was sent; try again")
            os.replace(part, os.path.join(blobs, name))
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)


def _there(blobs: bytes, entry: Entry) -> bool:
    """Whether a blob is in the store; note that it is in use. A power cut may have emptied it: its size shows that."""
    path = os.path.join(blobs, entry.sha256.encode())
    try:
        os.utime(path)
        return os.stat(path).st_size == entry.size
    except FileNotFoundError:
        return False


def _build(entries: tuple[Entry, ...], blobs: bytes, target: bytes, owner: str) -> None:
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "exists already", target)
    part, pace = target + b".part", Pace("built", sum(entry.size for entry in entries))
    shutil.rmtree(part, ignore_errors=True)
    os.makedirs(part)
    try:
        folders: set[bytes] = set()
        for entry in entries:
            path = _place(part, entry, folders, _CLOSED)
            if entry.sha256:
                _copy(os.path.join(blobs, entry.sha256.encode()), path, entry.mode)
                pace.add(entry.size)
        if owner and os.geteuid() == 0:
            _give(part, *map(int, owner.split(":")))
        _note_placed(entries, part, target + b".placed")
        os.rename(part, target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _note_placed(entries: tuple[Entry, ...], top: bytes, record: bytes) -> None:
    """Write down by path what was placed, and how it looks as long as nobody touches it."""
    placed: dict[str, list[Any]] = {}
    for entry in entries:
        status = os.lstat(os.path.join(top, entry.name))
        placed[entry.path] = [entry.sha256, entry.link, entry.size, status.st_mtime_ns, status.st_ctime_ns]
    with open(record, "w", encoding="ascii") as file:
        json.dump(placed, file, separators=(",", ":"))


def _place(top: bytes, entry: Entry, folders: set[bytes], mode: int) -> bytes:
    """Create the folders above an entry, and the entry itself unless it is a file; never through a link."""
    path = os.path.join(top, entry.name)
    is_folder = not entry.sha256 and not entry.link
    words = entry.name.split(b"/")
    for count in range(1, len(words) + is_folder):
        folder = os.path.join(top, *words[:count])
        if folder not in folders:
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder)
            if not stat.S_ISDIR(os.lstat(folder).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, "is not a folder", folder)
            os.chmod(folder, mode)
            folders.add(folder)
    if entry.link:
        with contextlib.suppress(FileExistsError):
            os.symlink(encoded(entry.link), path)
    return path


def _copy(source: bytes, target: bytes, mode: int) -> None:
    """Copy a file; where the file system can do that, both share their blocks."""
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(source, "rb") as old, os.fdopen(handle, "wb") as new:
        with contextlib.suppress(OSError, AttributeError):  # not on every system, nor between all file systems
            while os.copy_file_range(old.fileno(), new.fileno(), 1 << 30):
                pass
        # Copy the rest, which is everything if the call above is not supported.
        shutil.copyfileobj(old, new, CHUNK_BYTES)
        os.fchmod(handle, mode)


def _give(top: bytes, uid: int, gid: int) -> None:
    os.chown(top, uid, gid)
    for folder, folders, files in os.walk(top):
        for name in folders + files:
            os.chown(os.path.join(folder, name), uid, gid, follow_symlinks=False)


def _prune(store: bytes, blobs: bytes) -> None:
    """Once a day, unless the store is in use, remove blobs that are long unused or half written."""
    with open(os.path.join(store, b"lock"), "ab") as lock:
        if time.time() - os.fstat(lock.fileno()).st_mtime < _PRUNE_S:  # the time of the last pruning
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        os.utime(lock.fileno())
        for blob in os.scandir(blobs):
            if blob.name.endswith(b".part") or time.time() - blob.stat().st_mtime > _UNUSED_S:
                os.unlink(blob.path)


# Data: OWN/<hash>/<base name>/..., whole or in OWN/<hash>.part.


def have(own: bytes, tree_hash: str) -> None:
    """Report whether the data is there."""
    say(complete=os.path.isdir(os.path.join(own, tree_hash.encode())))


def want(own: bytes, tree_hash: str, stream: IO[bytes]) -> None:
    """Report which files are missing, and from which byte on: (index in the manifest, offset)."""
    entries = _checked(read_block(stream), tree_hash)
    with _part(own, tree_hash) as part:
        say(complete=part is None, wanted=[] if part is None else _wanted(part, entries))


def take(own: bytes, tree_hash: str, stream: IO[bytes]) -> None:
    """Complete the data with the pieces that arrive; those that `want` didn't ask for are there."""
    entries = _checked(read_block(stream), tree_hash)
    with _part(own, tree_hash) as part:
        if part is not None:
            _receive(stream, part, entries, Pace("taken", sum(entry.size for entry in entries)))
            _finish(part, entries)
    say(complete=True)


def fetch(own: bytes, tree_hash: str, sources: list[str], stream: IO[bytes]) -> None:
    """Complete the data from a tree on another node, over this node's own SSH access to it, or on this one.

    The tree may still be arriving there. Where a source fails, it goes on from the next one, at the byte that it had.

    Args:
        sources: targets, tops and patiences in turn.

    Raises:
        SourceError: no node can be reached and has the data.
    """
    manifest, sending = read_block(stream), read_block(stream).decode()
    entries = _checked(manifest, tree_hash)
    with _part(own, tree_hash) as part:
        if part is not None:
            done: set[int] = set()
            for place in range(0, len(sources), 3):
                target, top, patience = sources[place : place + 3]
                command = [*_SSH, "--", target, sending] if target else ["/bin/sh", "-c", sending]
                asked = block(json.dumps([top, tree_hash, float(patience)]).encode()) + block(manifest)
                try:
                    _fetch_rest(command, asked, part, entries, done)
                    break
                except SourceError as error:
                    if place + 3 >= len(sources):
                        raise
                    say(doing="moved", source=target, why=str(error))
            _finish(part, entries)
    say(complete=True)


def _fetch_rest(command: list[str], asked: bytes, part: bytes, entries: tuple[Entry, ...], done: set[int]) -> None:
    """Receive from the command what is missing but for the files `done`; note there which have arrived.

    Args:
        asked: what the command reads before the list of what is wanted.
    """
    wanted = _wanted(part, entries, done)
    pace = Pace("fetched", sum(entries[index].size - offset for index, offset in wanted))
    with _sender(command, asked + block(json.dumps(wanted).encode())) as sender:
        _receive(sender, part, entries, pace, done)


@contextlib.contextmanager
def _sender(command: list[str], request: bytes) -> Iterator[IO[bytes]]:
    """Start the command that sends, hand it the request, and yield its output; raise its reason if it ends early."""
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        except OSError as error:
            raise SourceError(f"{command[0]}: {error.strerror}") from error
        assert process.stdin is not None and process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # it has ended already; its standard error says why
                process.stdin.write(request)
                process.stdin.close()
            yield process.stdout
        except (EOFError, ValueError) as error:
            process.kill()
            process.wait()
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines()
            raise SourceError(lines[-1] if lines else str(error)) from error
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()


def send(stream: IO[bytes]) -> None:
    """Write the wanted pieces of a tree to standard output, as far as it is there, and as it arrives."""
    top, tree_hash, patience_s = json.loads(read_block(stream))
    entries = _checked(read_block(stream), tree_hash)
    growing = _Growing(os.fsencode(top), patience_s)
    for index, offset in json.loads(read_block(stream)):
        sys.stdout.buffer.write(b"%d %d %d\n" % (index, offset, entries[index].size - offset))
        for data in growing.read(entries[index], offset):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    sys.stdout.buffer.write(END)
    sys.stdout.buffer.flush()


class _Growing:
    """A tree that is there, or still arriving."""

    def __init__(self, top: bytes, patience_s: float) -> None:
        self._top, self._part = top, top + b".part"
        self._until = time.monotonic() + patience_s
        self._seen = False

    def read(self, entry: Entry, offset: int) -> Iterator[bytes]:
        """Yield a file from `offset` on, to its end.

        Raises:
            ValueError: it is not there, and nothing arrives.
        """
        heard_at = time.monotonic()
        while offset < entry.size:
            data = self._data(entry, offset)
            if data:
                offset, heard_at = offset + len(data), time.monotonic()
                yield data
            else:
                self._wait(entry, heard_at)

    def _data(self, entry: Entry, offset: int) -> bytes:
        for top in (self._top, self._part):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                handle = os.open(os.path.join(top, entry.name), os.O_RDONLY)
                try:
                    return os.pread(handle, min(CHUNK_BYTES, entry.size - offset), offset)
                finally:
                    os.close(handle)
        return b""

    def _wait(self, entry: Entry, heard_at: float) -> None:
        """Wait for more. A tree that is whole, or that nobody brings any more, has no more."""
        whole = os.path.isdir(self._top)
        if not whole and self._arrives():
            self._seen = True
            if time.monotonic() - heard_at > _SILENCE_S:
                raise ValueError(f"nothing has arrived there for {_SILENCE_S} s")
        elif os.path.isdir(self._top) and not whole:
            return  # it has just become whole
        elif whole or self._seen or time.monotonic() > self._until:
            what = "changed while it was sent; try again" if whole else "No such file, and nothing arrives"
            raise ValueError(f"{os.fsdecode(os.path.join(self._top, entry.name))!r}: {what}")
        time.sleep(_POLL_S)

    def _arrives(self) -> bool:
        """Whether somebody has locked the folder in which it grows."""
        try:
            handle = os.open(self._part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            return not _lock(handle, fcntl.LOCK_SH)
        finally:
            os.close(handle)


def piece(path: bytes, index: int, offset: int, size: int) -> Iterator[bytes]:
    """Yield a piece: its header, then the file from `offset` on.

    Raises:
        ValueError: the file is shorter than it was.
    """
    with open(path, "rb") as file:
        file.seek(offset)
        yield b"%d %d %d\n" % (index, offset, size - offset)
        try:
            yield from _exactly(file, size - offset)
        except EOFError as error:
            raise ValueError(f"{os.fsdecode(path)!r} changed while it was sent; try again") from error


def _checked(manifest: bytes, tree_hash: str) -> tuple[Entry, ...]:
    if hashlib.sha256(manifest).hexdigest() != tree_hash:
        raise ValueError("the manifest is not that of the tree")
    return parse(manifest)


@contextlib.contextmanager
def _part(own: bytes, tree_hash: str) -> Iterator[bytes | None]:
    """Yield the folder in which the data grows, locked for us alone; None if the data is complete."""
    whole = os.path.join(own, tree_hash.encode())
    part = whole + b".part"
    if os.path.isdir(whole):
        yield None
        return
    os.makedirs(part, exist_ok=True)
    handle = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        while not _lock(handle):
            say(doing="waiting")
            time.sleep(0.5)
        if os.path.isdir(whole):  # the holder of the lock has completed it; a folder created since is empty
            with contextlib.suppress(OSError):
                os.rmdir(part)
            yield None
        else:
            yield part
    finally:
        os.close(handle)


def _lock(handle: int, how: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wanted(part: bytes, entries: tuple[Entry, ...], done: Container[int] = ()) -> list[tuple[int, int]]:
    """What is missing but for `done`. Files of full size are read, and kept only if their hash is right."""
    wanted, pace = [], Pace("checked", sum(entry.size for entry in entries))
    for index, entry in enumerate(entries):
        if entry.sha256 and index not in done:
            offset = _arrived(os.path.join(part, entry.name), entry, pace)
            if offset is not None:
                wanted.append((index, offset))
    return wanted


def _arrived(path: bytes, entry: Entry, pace: Pace) -> int | None:
    """How many bytes of a file arrived earlier; None: all of them, and they are right."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    if stat.S_ISREG(status.st_mode) and status.st_size < entry.size:
        return status.st_size
    if stat.S_ISREG(status.st_mode) and status.st_size == entry.size:
        digest = hashlib.sha256()
        with open(path, "rb") as file:
            for data in _exactly(file, entry.size):
                digest.update(data)
                pace.add(len(data))
        if digest.hexdigest() == entry.sha256:
            return None
    os.unlink(path)
    return 0


def _receive(
    stream: IO[bytes], part: bytes, entries: tuple[Entry, ...], pace: Pace, done: set[int] | None = None
) -> None:
    folders: set[bytes] = set()
    for head in iter(lambda: _line(stream), END):
        index, offset, length = map(int, head.split())
        entry = entries[index]
        if not entry.sha256 or offset + length != entry.size:
            raise ValueError("a piece that does not fit")
        path = _place(part, entry, folders, _OPEN)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "rb+") as file:
            if os.fstat(handle).st_size != offset:
                raise ValueError(f"{entry.path!r} is not as long as it was a moment ago; try again")
            digest = hashlib.sha256()
            for data in _exactly(file, offset):
                digest.update(data)
            for data in _exactly(stream, length):
                digest.update(data)
                file.write(data)
                file.flush()  # it may be sent on at once
                pace.add(len(data))
            if digest.hexdigest() != entry.sha256:
                os.unlink(path)
                raise ValueError(f"{entry.path!r} changed while it was sent; try again")
            if done is not None:
                done.add(index)


def _finish(part: bytes, entries: tuple[Entry, ...]) -> None:
    """Give the data its final name once it is whole and on the disk."""
    folders: set[bytes] = set()
    for entry in entries:
        path = _place(part, entry, folders, _OPEN)
        if entry.sha256:
            if os.lstat(path).st_size != entry.size:
                raise ValueError(f"{entry.path!r} has not arrived completely; try again")
            os.chmod(path, entry.mode & ~0o222)  # several jobs use the data
    os.chmod(part, _OPEN)  # the folder above is ours alone; a job that gets this one may run as somebody else
    handle = os.open(part, os.O_RDONLY)
    ctypes.CDLL(None).syncfs(handle)  # its content is never checked again: a power cut must not leave a torn file
    os.close(handle)
    os.rename(part, part[: -len(b".part")])


def adopt(own: bytes, tree_hash: str, target: bytes, owner: str) -> None:
    """Move the data into the empty folder `target`; nothing stays in `own`.

    Args:
        owner: uid:gid that the files get if we are root.
    """
    whole = os.path.join(own, tree_hash.encode())
    for folder, _, files in os.walk(whole):
        os.chmod(folder, 0o700)
        for path in (os.path.join(folder, name) for name in files):
            if not os.path.islink(path):
                os.chmod(path, os.stat(path).st_mode & 0o700 | 0o600)
    if os.geteuid() == 0:
        _give(whole, *map(int, owner.split(":")))
    os.rename(whole, target)
    os.rmdir(own)
    say(complete=True)


def main(words: list[str]) -> None:
    """Run the verb in `words`."""
    os.umask(0o077)
    stream = sys.stdin.buffer
    verb, folder, *rest = (*words, "") if len(words) == 1 else words
    try:
        if verb == "make":
            make(os.fsencode(folder), os.fsencode(rest[0]), rest[1], stream)
        elif verb == "fetch":
            fetch(os.fsencode(folder), rest[0], rest[1:], stream)
        elif verb == "send":
            send(stream)
        elif verb == "adopt":
            adopt(os.fsencode(folder), rest[0], os.fsencode(rest[1]), rest[2])
        elif verb == "have":
            have(os.fsencode(folder), rest[0])
        else:
            {"want": want, "take": take}[verb](os.fsencode(folder), rest[0], stream)
    except BrokenPipeError:
        os._exit(1)  # nobody reads any more
    except SourceError as error:
        _fail(verb, error=str(error), source=True)
    except OSError as error:
        where = error.filename2 or error.filename or os.fsencode(folder)
        _fail(verb, error=error.strerror, path=os.fsdecode(where), errno=errno.errorcode.get(error.errno or 0, ""))
    except (ValueError, EOFError) as error:
        _fail(verb, error=str(error))


def _fail(verb: str, **fields: Any) -> None:
    """Report what went wrong: as a message, or, if standard output is for data, in words on standard error."""
    if verb == "send":
        print(" ".join(str(value) for value in fields.values()), file=sys.stderr)
    else:
        say(**fields)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
