"""A registry on this node's loopback that hands an image on while it is still arriving.

It runs on a node as `python3 -IS relay.py FOLDER PORT [node...]`. It stands alone (only the standard library) and has
to be one file, however long: it is copied there. Without nodes it is the first of a chain: the engine there pushes the
image into it. With nodes (those before this one in the chain, the nearest first) it takes no pushes. What it lacks it
fetches from the nearest by SSH, and passes it on to its own engine and to the next node as it comes; when that node
fails it goes on from another one, at the byte that it had. `Search` decides that, and when no node is left to ask.

Everything is named by its SHA-256, manifests too; tags are not kept. FOLDER/blobs has what is whole, and `.part` files
that the next start goes on with, unless the node was started in between; FOLDER/blobs/moved has a line for each node
that failed.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO, Any

CHUNK = 1 << 18
_PAUSE_S = 2.0
SILENCE_S = 45.0
"""How long a node waits for a byte. It notices in 15 s that the node before it is gone, and needs 10 s for each further
one that doesn't answer: by then bytes flow again, or else all behind it would move on too."""
STALLED_S = 35.0
"""A relay that had no byte for this long says so at once to the one behind it. It is less than SILENCE_S because bytes
don't stop on all nodes at the same moment."""
GIVE_UP_S = 60.0
"""A blob is given up this long after its last byte, once all nodes before this one were asked. Bytes stop on all nodes
together, so all give up together, however long the chain is."""
_HELD_S = 60.0
"""How long a failure is answered without another search: an engine that asks again does so four times in 50 s."""
_OPEN_S = 20
_LONGEST = 10_000
MANIFEST_BYTES = 4 << 20
"""Manifests are read into memory; registries refuse larger ones too."""
_LENGTH, _CHUNK_LENGTH = re.compile("[0-9]{1,13}"), re.compile(b"[0-9A-Fa-f]{1,11}")
"""Below 18 TB: larger numbers are no layer's."""
_PLACE = re.compile(r"/v2/[a-z/]+/(blobs|manifests)/sha256:([0-9a-f]{64})")
_UPLOAD = re.compile(r"/v2/[a-z/]+/blobs/uploads/([0-9a-f]{0,32})(?:\?(?:.*&)?digest=sha256(?::|%3A)([0-9a-f]{64}))?.*")
_STATE = "/state"
_PUT_MANIFEST = re.compile(r"/v2/[a-z/]+/manifests/[A-Za-z0-9._:-]+")
_RELAY = "Ringmaster-Relay"
"""A header: another relay asks, who has other nodes to turn to, and not an engine."""
_OCI, _DOCKER = "application/vnd.oci.image.", "application/vnd.docker.distribution.manifest."
# `cat` rather than -N: it ends when our end of its input closes, so a tunnel never outlives the process that opened it.
_SSH = (
    "ssh", "-T", "-a", "-x",
    "-o", "BatchMode=yes",
    "-o", "StrictHostKeyChecking=yes",
    "-o", "ExitOnForwardFailure=yes",
    "-o", "StreamLocalBindUnlink=yes",
    "-o", "ConnectTimeout=10",
    "-o", "ServerAliveInterval=5",  # a silent network is noticed in 15 s
    "-o", "ServerAliveCountMax=3",
    "-o", "LogLevel=INFO",  # from there on ssh says why a forwarding is refused
    "-o", "ControlMaster=no",
    "-o", "ControlPath=none",
)  # fmt: skip

Fetch = Callable[[str, int], "tuple[int, Iterator[bytes]]"]
"""Gives a blob's whole size, and its bytes from an offset on. Raises SourceError, also while they are read."""


class SourceError(Exception):
    """A node before this one can't send a blob, or not all of it."""


class BodyError(Exception):
    """A body is not as HTTP has it, is too long, or comes at the wrong time. `status` is HTTP's for that."""

    def __init__(self, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.status = status


class LackingError(SourceError):
    """A node before this one works, but neither it nor any before it has the blob."""


class Search:
    """Decides for one blob which source is asked next, and when the blob is given up. Pure: it is told the time."""

    def __init__(self, count: int, now: float) -> None:
        self._count = count
        self._arrived = now
        self._lacking: set[int] = set()
        self._asked: set[int] = set()
        """In this round."""
        self._all_asked = False

    def arrived(self, now: float) -> None:
        """A byte came: whatever failed before it counts no more."""
        self._arrived, self._all_asked = now, False
        self._asked.clear()
        self._lacking.clear()

    def failed(self, place: int, *, lacks: bool = False) -> bool:
        """Note the failure of a source; return whether a round is over."""
        self._asked.add(place)
        if lacks:
            self._lacking.add(place)
        if len(self._asked | self._lacking) < self._count:
            return False
        self._all_asked = True
        self._asked.clear()
        return True

    def following(self, current: int, now: float) -> int | None:
        """Return the place of the source to ask, `current` or the next one not asked yet; None to give up."""
        places = [(current + step) % self._count for step in range(self._count)]
        left = [place for place in places if place not in self._lacking and place not in self._asked]
        if not left or (self._all_asked and now - self._arrived >= GIVE_UP_S):
            return None
        return left[0]

    def nobody_has_it(self) -> bool:
        return len(self._lacking) == self._count


class Chain:
    """The nodes before this one, nearest first. All blobs come from the same one until it fails."""

    def __init__(self, sources: Sequence[tuple[str, Fetch]], pause_s: float = _PAUSE_S, log: str = os.devnull) -> None:
        self.sources = list(sources)
        self.pause_s = pause_s
        """Between two rounds over all of them."""
        self.current = 0
        self._log = log
        self._lock = threading.Lock()

    def failed(self, place: int, why: str) -> None:
        """Go on with the next one, and after the last with the nearest again."""
        with self._lock:
            if place != self.current:
                return  # another blob has moved on already
            with open(self._log, "a", encoding="utf-8", errors="replace") as log:  # another node's words
                log.write(f"{self.sources[place][0]}: {' '.join(why.split())}\n")
            self.current = (place + 1) % len(self.sources)


class Blob:
    """A file named by its digest, perhaps still growing; any number of readers follow it."""

    def __init__(self, folder: str, digest: str) -> None:
        self.digest = digest
        self.path = os.path.join(folder, digest)
        self.size: int | None = None
        self.have = 0
        self.problem = ""
        self.lacked = False
        """Whether the problem is that no node has it."""
        self._changed = threading.Condition()
        self._arrived = time.monotonic()
        self._again_at = 0.0
        if os.path.exists(self.path):
            self.size = self.have = os.path.getsize(self.path)

    def wait_size(self) -> int:
        """Return the whole size, once it is known.

        Raises:
            OSError: the blob can't be had.
        """
        with self._changed:
            while self.size is None and not self.problem:
                self._changed.wait()
        if self.size is None:
            raise OSError(self.problem)
        return self.size

    def read(self, offset: int) -> Iterator[bytes]:
        """Yield what comes after `offset`, as it arrives.

        Raises:
            OSError: the rest can't be had.
        """
        size = self.wait_size()
        with self._file() as file:
            file.seek(offset)
            while offset < size:
                with self._changed:
                    while self.have <= offset and not self.problem:
                        self._changed.wait()
                    if self.have <= offset:
                        raise OSError(self.problem)
                    count = min(CHUNK, self.have - offset)
                data = file.read(count)
                offset += len(data)
                yield data

    def stalled(self) -> bool:
        """Return whether more is to come, but nothing has for a while."""
        with self._changed:
            return self.have != self.size and time.monotonic() - self._arrived >= STALLED_S

    def failed_for_now(self) -> bool:
        """Return whether it can't be had, and it is too early to try again."""
        return bool(self.problem) and time.monotonic() < self._again_at

    def fill(self, chain: Chain) -> None:
        """Complete the file from the chain; tell readers of each byte, or why no more come."""
        try:
            part = self.path + ".part"
            with open(part, "ab+") as file:
                problem = self._receive(file, chain)
                os.fsync(file.fileno())  # its content is never read again to check it
            if not problem:
                os.replace(part, self.path)
                return
            os.unlink(part)
            self._tell(problem=problem)  # the next who asks gets it from another node
        except (OSError, SourceError, ValueError) as error:  # whatever it is: readers wait for it
            self._again_at = time.monotonic() + _HELD_S
            self.lacked = isinstance(error, LackingError)
            self._tell(problem=disk_problem(error, self.path) if isinstance(error, OSError) else str(error))

    def _receive(self, file: Any, chain: Chain) -> str:
        """Receive the rest; return what is wrong with the whole, or nothing.

        Raises:
            SourceError: no node sends the rest.
            OSError: it can't be written.
        """
        digest, search = self._resume(file), Search(len(chain.sources), time.monotonic())
        reasons: dict[int, str] = {}
        while (place := search.following(chain.current, time.monotonic())) is not None:
            name, fetch = chain.sources[place]
            try:
                size, pieces = fetch(self.digest, self.have)
                if self.size not in (None, size):
                    raise SourceError(f"it says {size} bytes where another node said {self.size}")
                self._tell(size=size)
                for data in pieces:
                    file.write(data)
                    file.flush()  # readers may have it now
                    digest.update(data)
                    self._tell(more=len(data))
                    search.arrived(self._arrived)
                if self.have < size:
                    raise SourceError("the connection ended early")
            except SourceError as error:
                reasons[place], lacks = str(error), isinstance(error, LackingError)
                if not lacks:
                    chain.failed(place, reasons[place])
                if search.failed(place, lacks=lacks):
                    time.sleep(chain.pause_s)
                continue
            if digest.hexdigest() == self.digest:
                return ""
            chain.failed(place, "what arrived has another SHA-256")
            return f"what arrived from {name} has another SHA-256"
        first = max(reasons)  # all bytes come from the first node: its reason says more than those of the nodes between
        name, why = chain.sources[first][0], reasons[first]
        if search.nobody_has_it():
            raise LackingError(why)
        raise SourceError(f"no node of the chain sends it, as {name}: {why}: {remedy(name, why)}")

    def _resume(self, file: Any) -> Any:
        """Return the hash of what an interrupted delivery has left."""
        digest = hashlib.sha256()
        file.seek(0)
        for data in iter(lambda: file.read(CHUNK), b""):
            digest.update(data)
            self._tell(more=len(data))
        return digest

    def _tell(self, size: int | None = None, more: int = 0, problem: str = "") -> None:
        with self._changed:
            self.size = self.size if size is None else size
            self.have += more
            self._arrived = time.monotonic() if more else self._arrived
            self.problem = problem or self.problem
            self._changed.notify_all()

    def _file(self) -> IO[bytes]:
        for path in (self.path, self.path + ".part"):
            with contextlib.suppress(FileNotFoundError):
                return open(path, "rb", buffering=0)
        return open(self.path, "rb", buffering=0)  # it became whole between the two


class Store:
    """The blobs of this node, and the chain that those come from that it lacks."""

    def __init__(self, folder: str, chain: Chain | None) -> None:
        self.folder, self.chain = folder, chain
        self._blobs: dict[str, Blob] = {}
        self._written: set[str] = set()
        self.sending = 0
        self.push_problem = ""
        """Why the last push could not be stored."""
        self._lock = threading.Lock()

    def get(self, digest: str) -> Blob | None:
        """Return a blob; one that is missing begins to arrive, if there is a chain; a failed one after a while."""
        with self._lock:
            blob = self._blobs.get(digest)
            if blob is None or (blob.problem and not blob.failed_for_now()):
                blob = Blob(self.folder, digest)
                if blob.size is None and self.chain is None:
                    return None
                if blob.size is None:
                    threading.Thread(target=blob.fill, args=(self.chain,), daemon=True).start()
                self._blobs[digest] = blob
            return blob

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count what is being sent."""
        with self._lock:
            self.sending += 1
        try:
            yield
        finally:
            with self._lock:
                self.sending -= 1

    @contextlib.contextmanager
    def only_writer(self, upload: str) -> Iterator[None]:
        """Keep others from writing an upload.

        Raises:
            BodyError: somebody writes it.
        """
        with self._lock:
            if upload in self._written:
                raise BodyError("somebody else writes this upload", 409)
            self._written.add(upload)
        try:
            yield
        finally:
            with self._lock:
                self._written.remove(upload)

    def state(self) -> dict[str, Any]:
        """Return what the function `state` says of it to others."""
        with self._lock:
            failed = [blob for blob in self._blobs.values() if blob.failed_for_now() and not blob.lacked]
            busy = self.sending + len(self._written)
        return {"problem": failed[0].problem if failed else self.push_problem, "sending": busy}


class Tunnel:
    """One SSH connection to the relay of another node, for all blobs; opened when needed, and again after a break."""

    def __init__(self, name: str, path: str, port: int, ssh: Sequence[str] = _SSH) -> None:
        self._name, self._path, self._port, self._command = name, path, port, ssh
        self._lock = threading.Lock()
        self._ssh: subprocess.Popen[bytes] | None = None
        self._log = path + ".log"
        """ssh's own words. Its standard error has sshd's banner too, which would be taken for a failure's reason."""
        self._refused_at = 0.0

    def fetch(self, digest: str, offset: int) -> tuple[int, Iterator[bytes]]:
        """Do as `Fetch` says."""
        try:
            self._open()
            connection = _UnixConnection(self._path)
            headers = {"Range": f"bytes={offset}-", _RELAY: "1"}
            connection.request("GET", f"/v2/x/blobs/sha256:{digest}", headers=headers)
            answer = connection.getresponse()
            if answer.status != http.client.PARTIAL_CONTENT:
                refusal = LackingError if answer.status == http.client.NOT_FOUND else SourceError
                raise refusal(_message(answer.read(_LONGEST)))
            size = offset + length_of(answer.headers["Content-Length"])
            return size, self._pieces(connection, answer)
        except BodyError as error:
            raise SourceError(str(error)) from error
        except (OSError, http.client.HTTPException) as error:
            raise SourceError(self._why(error)) from error

    def _pieces(self, connection: _UnixConnection, answer: http.client.HTTPResponse) -> Iterator[bytes]:
        with contextlib.closing(connection):
            try:
                yield from iter(lambda: answer.read1(CHUNK), b"")
                if answer.length:
                    raise ConnectionError("the connection ended early")
            except (OSError, http.client.HTTPException) as error:
                raise SourceError(self._why(error)) from error

    def _open(self) -> None:
        asked_at = time.monotonic()
        with self._lock:
            if self._ssh is not None and self._ssh.poll() is None:
                return
            if self._refused_at > asked_at:
                raise OSError("no tunnel")  # while we waited, another blob tried: not every blob waits for a dead node
            for path in (self._path, self._log):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            forward = f"{self._path}:127.0.0.1:{self._port}"
            words = [*self._command, "-E", self._log, "-L", forward, self._name, "cat"]
            self._ssh = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
            deadline = time.monotonic() + _OPEN_S
            while not os.path.exists(self._path):
                if self._ssh.poll() is not None or time.monotonic() > deadline:
                    self._ssh.kill()
                    self._ssh.wait()
                    self._refused_at = time.monotonic()
                    raise OSError("no tunnel")
                time.sleep(0.05)

    def _why(self, error: Exception) -> str:
        """Return what ssh says, or else what we saw."""
        if self._ssh is None:
            return str(error)
        with contextlib.suppress(subprocess.TimeoutExpired):  # its connections end a moment before it does
            self._ssh.wait(0.5)
        lines: list[str] = []
        with contextlib.suppress(OSError), open(self._log, encoding="utf-8", errors="replace") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _LONGEST))
            lines = [line.strip() for line in log if line.strip()]
        if self._ssh.poll() is not None:
            return f"not reached by SSH: {lines[-1]}" if lines else str(error)
        refused = [line for line in lines if line.startswith("channel ")]
        return refused[-1] if refused and not isinstance(error, socket.timeout) else str(error)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=SILENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def disk_problem(error: OSError, path: str) -> str:
    """Return why a file can't be written, with its folder; the file's own name says nothing. Pure."""
    return f"{error.strerror or error} in {os.path.dirname(path)}"


def remedy(source: str, reason: str) -> str:
    """Return what mends it that a node sends nothing. Pure."""
    if "prohibited" in reason:
        return f"let sshd at {source} forward (`AllowTcpForwarding yes`)"
    if reason.startswith("channel ") or " by SSH: " not in reason:
        return f"see whether {source} has failed, and run it again"
    return "run `make provision TAGS=ssh_mesh`, and `make verify TAGS=ssh_mesh` shows which way fails"


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["errors"][0]["message"])
    except (ValueError, LookupError, TypeError):
        return "it sends no blob"


def length_of(text: str | None) -> int:
    """Return a Content-Length in bytes; 0 where there is none. Pure.

    Raises:
        BodyError: it is no number, or larger than any layer.
    """
    if not _LENGTH.fullmatch(text or "0"):
        raise BodyError(f"no valid Content-Length: {text}")
    return int(text or 0)


def kind_of(content: bytes) -> str:
    """Return a manifest's media type. Pure.

    Raises:
        ValueError: it is no manifest.
    """
    known = json.loads(content)
    if not isinstance(known, dict):
        raise ValueError("no object")
    if known.get("mediaType"):
        return str(known["mediaType"])
    if "manifests" in known:
        return f"{_OCI}index.v1+json"
    config = known.get("config", {}).get("mediaType", "")
    return f"{_OCI}manifest.v1+json" if config.startswith(_OCI) else f"{_DOCKER}v2+json"


def _upload_at(folder: str, name: str, size: int) -> dict[str, str]:
    """Return the headers that say where an upload goes on, and after how many bytes. Pure."""
    return {"Location": folder + name, "Docker-Upload-UUID": name, "Range": f"0-{max(0, size - 1)}"}


class Answers(BaseHTTPRequestHandler):
    """The part of a registry's protocol that engines need; `server.store` has the blobs."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        found = _PLACE.fullmatch(self.path)
        blob = self._store.get(found[2]) if found else None
        if self.path == "/v2/":
            self._answer(200, b"{}")
        elif self.path == _STATE:
            self._answer(200, json.dumps(self._store.state()).encode())
        elif found is None or blob is None:
            self._refuse(404, "the registry of this delivery hasn't it")
        elif blob.problem and (self._offset() or 0) >= blob.have:
            self._refuse(404 if blob.lacked else 502, blob.problem)
        elif _RELAY in self.headers and blob.stalled() and (self._offset() or 0) >= blob.have:
            self._refuse(503, "nothing reaches it either")
        else:
            try:
                self._send(blob, manifest=found[1] == "manifests")
            except OSError as error:
                self._refuse(404 if blob.lacked else 502, str(error))

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        """Begin an upload."""
        if self._store.chain is not None or not _UPLOAD.fullmatch(self.path):
            self._refuse(405, "the registry of this delivery takes nothing here")
            return
        name = uuid.uuid4().hex
        with open(self._upload(name), "xb"):
            pass
        self._answer(202, b"", _upload_at(self.path.partition("?")[0], name, 0))

    def do_PATCH(self) -> None:
        """Go on with an upload."""
        self._alone(self._go_on)

    def do_PUT(self) -> None:
        """End an upload, or take a manifest."""
        self._alone(self._end_upload)

    def _alone(self, write: Callable[[], tuple[int, dict[str, str]]]) -> None:
        """Answer with what `write` returns, once others may write: an engine goes on at once, by another connection."""
        found = _UPLOAD.fullmatch(self.path)
        try:
            with self._store.only_writer(found[1]) if found else contextlib.nullcontext():
                status, headers = write()
        except BodyError as error:
            self._refuse(error.status, str(error))
        else:
            self._answer(status, b"", headers)

    def _go_on(self) -> tuple[int, dict[str, str]]:
        name, size = self._take()
        return 202, _upload_at(self.path.rpartition("/")[0] + "/", name, size)

    def _end_upload(self) -> tuple[int, dict[str, str]]:
        if _PUT_MANIFEST.fullmatch(self.path) and self._store.chain is None:
            part, wanted = self._upload(uuid.uuid4().hex), None
            self._append(part, MANIFEST_BYTES)
        else:
            name, _ = self._take()
            found = _UPLOAD.fullmatch(self.path)
            part, wanted = self._upload(name), str(found and found[2])
        digest = _digest_of(part)
        if wanted not in (None, digest):
            raise BodyError("what arrived has another SHA-256")
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        os.replace(part, os.path.join(self._store.folder, digest))
        return 201, {"Location": f"/v2/x/blobs/sha256:{digest}", "Docker-Content-Digest": f"sha256:{digest}"}

    @property
    def _store(self) -> Store:
        store: Store = self.server.store  # type: ignore[attr-defined]
        return store

    def _upload(self, name: str) -> str:
        return os.path.join(self._store.folder, f"{name}.upload")

    def _take(self) -> tuple[str, int]:
        """Append the body to its upload; return its name and size now.

        Raises:
            BodyError: there is no such upload, or its body can't be taken.
        """
        found = _UPLOAD.fullmatch(self.path)
        path = self._upload(found[1]) if found and found[1] else ""
        if not path or not os.path.exists(path):
            raise BodyError("no such upload", 404)
        return found[1], self._append(path)  # type: ignore[index]

    def _append(self, path: str, most: int | None = None) -> int:
        """Append the body to a file; return its size now.

        Raises:
            BodyError: the body is no valid one, is longer than `most` bytes, or can't be stored; nothing is left of
                the file.
        """
        try:
            with open(path, "ab") as file:
                for data in self._body():
                    file.write(data)
                    if most is not None and file.tell() > most:
                        raise BodyError(f"longer than {most} bytes", 413)
                return file.tell()
        except BodyError:
            os.unlink(path)
            raise
        except ConnectionError:
            raise
        except OSError as error:
            os.unlink(path)  # the engine begins anew, and this would take the room
            self._store.push_problem = disk_problem(error, path)
            raise BodyError(self._store.push_problem, 507) from error

    def _body(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            yield from self._exactly(length_of(self.headers.get("Content-Length")))
            return
        while True:
            line = self.rfile.readline(100).partition(b";")[0].strip()
            if not _CHUNK_LENGTH.fullmatch(line):
                raise BodyError("no valid length of a chunk")
            size = int(line, 16)
            yield from self._exactly(size)
            self.rfile.readline(100)
            if not size:
                return

    def _exactly(self, size: int) -> Iterator[bytes]:
        while size:
            data = self.rfile.read(min(CHUNK, size))
            if not data:
                raise ConnectionError("the engine's connection ended early")
            size -= len(data)
            yield data

    def _send(self, blob: Blob, *, manifest: bool) -> None:
        size, offset, kind = blob.wait_size(), self._offset(), "application/octet-stream"
        if manifest:
            try:
                kind = kind_of(b"".join(blob.read(0)) if size <= MANIFEST_BYTES else b"")
            except (ValueError, AttributeError):
                self._refuse(404, "that is no manifest")
                return
        more = {"Content-Type": kind, "Docker-Content-Digest": f"sha256:{blob.digest}"}
        if offset is None or offset > size:
            status, offset = 200, 0
        else:
            status, more["Content-Range"] = 206, f"bytes {offset}-{size - 1}/{size}"
        self._head(status, size - offset, more)
        if self.command == "HEAD":
            return
        try:
            with self._store.counted():
                for data in blob.read(offset):
                    self.wfile.write(data)
        except OSError:  # the rest can't be had, or nobody wants it: that is seen from the early end
            self.close_connection = True

    def _offset(self) -> int | None:
        """Return from where on the rest is asked for; None where the whole is."""
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        return int(wanted[1]) if wanted else None

    def _refuse(self, status: int, why: str) -> None:
        self.close_connection = True  # a body may be left unread
        self._answer(status, json.dumps({"errors": [{"code": "UNKNOWN", "message": why}]}).encode())

    def _answer(self, status: int, body: bytes, more: dict[str, str] | None = None) -> None:
        self._head(status, len(body), {"Content-Type": "application/json", **(more or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: int, length: int, more: dict[str, str]) -> None:
        self.send_response(status)
        headers = {"Docker-Distribution-Api-Version": "registry/2.0", "Content-Length": str(length), **more}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_request(self, *_words: object) -> None:
        """Say nothing of each request."""


def answers(port: int) -> bool:
    """Return whether a relay, or any registry, answers at this port of this node's loopback."""
    return _asked(port, "/v2/") is not None


def state(port: int) -> dict[str, Any]:
    """Return what the relay at this port of this node's loopback says; {} where there is none.

    `problem`: why it can't get or store a blob, or nothing. `sending`: how many blobs it is sending
    or, of the first node's engine, receiving.
    """
    try:
        known = json.loads(_asked(port, _STATE) or b"{}")
    except ValueError:
        return {}
    return known if isinstance(known, dict) else {}


def _asked(port: int, path: str) -> bytes | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        known = answer.status == 200 and "Docker-Distribution-Api-Version" in answer.headers
        return answer.read(_LONGEST) if known else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _digest_of(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for data in iter(lambda: file.read(CHUNK), b""):
            digest.update(data)
    return digest.hexdigest()


class Server(ThreadingHTTPServer):
    """A relay, on loopback only."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, store: Store, port: int) -> None:
        self.store = store
        super().__init__(("127.0.0.1", port), Answers)


def tidy(blobs: str, boot: str) -> None:
    """Remove what an earlier relay has left unfinished, and this one can't go on with.

    That is any upload, what another user's relay has left (only that user can read it), and a `.part` that was written
    before the node's last start: a power cut leaves such a file with bytes that were never written, and they would have
    been handed on, to engines too, when the SHA-256 of the whole shows that. What was written since is as it was
    written, even by a relay that was killed.
    """
    mark, same = os.path.join(blobs, "boot"), False
    with contextlib.suppress(OSError), open(mark, encoding="ascii") as file:  # none, or that of another user
        same = file.read() == boot
    for name in os.listdir(blobs):
        path = os.path.join(blobs, name)
        old = not same and (name == "boot" or name.endswith(".part"))
        if old or name.endswith(".upload") or os.lstat(path).st_uid != os.geteuid():
            os.unlink(path)
    if not os.path.exists(mark):
        with open(mark, "x", encoding="ascii") as file:
            file.write(boot)


def main(words: Sequence[str]) -> None:
    """Serve until we are stopped."""
    folder, port, nodes = words[0], int(words[1]), words[2:]
    os.umask(0o077)
    blobs = os.path.join(folder, "blobs")
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        tidy(blobs, file.read())
    sockets = tempfile.mkdtemp()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # systemd's way to stop it
    try:
        tunnels = [Tunnel(name, os.path.join(sockets, str(place)), port) for place, name in enumerate(nodes)]
        sources = [(name, tunnel.fetch) for name, tunnel in zip(nodes, tunnels)]
        Server(Store(blobs, Chain(sources, log=os.path.join(blobs, "moved")) if nodes else None), port).serve_forever()
    finally:
        shutil.rmtree(sockets)


if __name__ == "__main__":
    main(sys.argv[1:])
