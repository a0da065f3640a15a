"""Fixtures of the tests that fetch: no source but the mirror that a test asks for."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.published import Mirror, cifar_archive, closed_port, idx_files, published_at, zipped
from trainer.data.published import download, fetch
from trainer.data.published.catalog import CATALOG


@pytest.fixture
def closed_world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No source of the machine's own: no installed package, no apt, no proxy, no mirror unless the test has one."""
    monkeypatch.setattr(fetch, "SYSTEM_ROOT", tmp_path / "not-installed")
    monkeypatch.setattr(download.shutil, "which", lambda program: None)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setitem(CATALOG, "fashion-mnist", published_at("fashion-mnist"))
    monkeypatch.setitem(CATALOG, "cifar10", published_at("cifar10", f"http://127.0.0.1:{closed_port()}/"))


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    files = zipped(idx_files()) | {"cifar-10-python.tar.gz": cifar_archive()}
    server = Mirror(files)
    for name in ("fashion-mnist", "cifar10"):
        monkeypatch.setitem(CATALOG, name, published_at(name, server.url, files=files))
    yield server
    server.server.shutdown()
    server.server.server_close()


@pytest.fixture
def black_hole() -> Iterator[str]:
    """The address of a server that accepts connections and never sends a byte."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
