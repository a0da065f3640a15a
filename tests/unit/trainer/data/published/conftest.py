"""Fixtures of the tests that fetch: no source but the mirror that a test asks for."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from torchvision.datasets import CIFAR10, FashionMNIST

from tests.support.published import Mirror, cifar_archive, closed_port, idx_files, md5, zipped
from trainer.data.published import download, fetch


@pytest.fixture
def closed_world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No source of the machine's own: no installed package, no apt, no proxy, no mirror unless the test has one."""
    monkeypatch.setattr(fetch, "SYSTEM_ROOT", tmp_path / "not-installed")
    monkeypatch.setattr(download.shutil, "which", lambda program: None)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(FashionMNIST, "mirrors", [])
    monkeypatch.setattr(CIFAR10, "url", f"http://127.0.0.1:{closed_port()}/{CIFAR10.filename}")


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    files = zipped(idx_files()) | {CIFAR10.filename: cifar_archive()}
    server = Mirror(files)
    monkeypatch.setattr(FashionMNIST, "mirrors", [server.url])
    published = [(file, md5(files[file])) for file, _ in FashionMNIST.resources]
    monkeypatch.setattr(FashionMNIST, "resources", published)
    monkeypatch.setattr(CIFAR10, "url", server.url + CIFAR10.filename)
    monkeypatch.setattr(CIFAR10, "tgz_md5", md5(files[CIFAR10.filename]))
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
