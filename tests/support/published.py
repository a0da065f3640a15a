"""The published data sets in small: their files, a mirror of them, and what `fetch` says of them."""

import dataclasses
import gzip
import hashlib
import http.server
import io
import pickle
import socket
import struct
import tarfile
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from trainer.data.published import catalog, fetch
from trainer.data.published.catalog import CATALOG, PublishedSet, RemoteFile
from trainer.errors import UserError

_TRUE = dict(CATALOG)
"""The catalog before a test changes it."""


def idx_files() -> dict[str, bytes]:
    generator = np.random.default_rng(0)
    files = {}
    for prefix, count in (("train", 200), ("t10k", 100)):
        images = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        files[f"{prefix}-images-idx3-ubyte"] = struct.pack(">4B3I", 0, 0, 8, 3, count, 28, 28) + images.tobytes()
        files[f"{prefix}-labels-idx1-ubyte"] = struct.pack(">4BI", 0, 0, 8, 1, count) + bytes(
            i % 10 for i in range(count)
        )
    return files


def cifar_files() -> dict[str, bytes]:
    generator = np.random.default_rng(0)
    return {
        name: pickle.dumps({"data": generator.integers(0, 256, (4, 3072), dtype=np.uint8), "labels": [0, 1, 2, 3]})
        for name in CATALOG["cifar10"].files
    }


def cifar_archive() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in cifar_files().items():
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def zipped(files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{name}.gz": gzip.compress(content) for name, content in files.items()}


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


class Said(list[str]):
    def __call__(self, line: str) -> None:
        self.append(line)


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Mirror:
    """An HTTP server on loopback that counts its requests."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.requests: list[str] = []
        mirror = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.strip("/")
                mirror.requests.append(name)
                if name not in files:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.end_headers()
                self.wfile.write(files[name])

            def log_message(self, *arguments: object) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def published_at(name: str, *addresses: str, files: Mapping[str, bytes] | None = None) -> PublishedSet:
    """The catalog's entry of a set, to be fetched from other addresses, and with other files' checksums if any."""
    described = _TRUE[name]
    remote = {file.name: sha256(files[file.name]) if files else file.sha256 for file in described.mirrors[0].files}
    mirrors = (
        catalog.Mirror(
            address=address,
            files=tuple(RemoteFile(url=address + file, name=file, sha256=digest) for file, digest in remote.items()),
        )
        for address in addresses
    )
    return dataclasses.replace(described, mirrors=tuple(mirrors))


def ensure(name: str, data_dir: Path, own_copy: Path | None = None) -> Said:
    said = Said()
    fetch.ensure(name, data_dir=data_dir, own_copy=own_copy, say=said)
    return said


def refused(name: str, data_dir: Path, own_copy: Path | None = None) -> str:
    with pytest.raises(UserError) as error:
        ensure(name, data_dir, own_copy)
    assert error.value.exit_code == 2
    message = str(error.value)
    assert "\n" not in message
    assert all(f"({way})" in message for way in (1, 2, 3))
    return message
