"""Where the data comes from: the cache, mirrors (simulated on loopback), and the real package."""

import json
import multiprocessing
import os
import shutil
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
from torchvision.datasets import FashionMNIST

from tests.support.published import Mirror, ensure, idx_files, published_at, refused, write, zipped
from trainer.data.published import download, fetch
from trainer.data.published.catalog import CATALOG
from trainer.errors import UserError

pytestmark = pytest.mark.usefixtures("closed_world")
FORK = multiprocessing.get_context("fork")


# Mirrors and the cache


@pytest.mark.parametrize(("name", "files"), [("fashion-mnist", 4), ("cifar10", 1)])
def test_the_mirror_is_tried_once_and_torchvision_finds_the_files_too(
    tmp_path: Path, mirror: Mirror, name: str, files: int
) -> None:
    assert ensure(name, tmp_path) == []
    assert len(mirror.requests) == files
    assert ensure(name, tmp_path) == []
    assert len(mirror.requests) == files
    if name == "fashion-mnist":
        assert len(FashionMNIST(tmp_path, download=True)) == 200
    assert not list(tmp_path.rglob(".fetching*"))


@pytest.mark.parametrize("harm", ["cut", "flip", "gone"])
def test_a_harmed_cached_file_is_fetched_again(tmp_path: Path, mirror: Mirror, harm: str) -> None:
    ensure("fashion-mnist", tmp_path)
    target = tmp_path / "FashionMNIST/raw/train-images-idx3-ubyte"
    whole = target.read_bytes()
    if harm == "gone":
        target.unlink()
    else:
        target.write_bytes(whole[:-1] if harm == "cut" else whole[:-1] + bytes([whole[-1] ^ 1]))
    ensure("fashion-mnist", tmp_path)
    assert target.read_bytes() == whole


@pytest.mark.parametrize("record", ["", "[]", "{}", '{"sha256": 1}', "nonsense"])
def test_a_harmed_record_is_written_again(tmp_path: Path, mirror: Mirror, record: str) -> None:
    ensure("fashion-mnist", tmp_path)
    (tmp_path / "fashion-mnist.json").write_text(record)
    ensure("fashion-mnist", tmp_path)
    assert json.loads((tmp_path / "fashion-mnist.json").read_text())["published"] is True


def test_what_a_killed_process_left_is_cleared_away(tmp_path: Path, mirror: Mirror) -> None:
    write(tmp_path / ".fetching-old", {"train-images-idx3-ubyte.gz": b"half"})
    ensure("fashion-mnist", tmp_path)
    assert not list(tmp_path.glob(".fetching*"))


def test_a_file_with_another_checksum_is_not_taken(
    tmp_path: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"{file}.gz": b"other content" for file in CATALOG["fashion-mnist"].files}
    monkeypatch.setitem(CATALOG, "fashion-mnist", published_at("fashion-mnist", mirror.url, files=files))
    assert "wrong checksum" in refused("fashion-mnist", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_the_second_mirror_is_tried_when_the_first_has_nothing(
    tmp_path: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, addresses = zipped(idx_files()), (f"{mirror.url}empty/", mirror.url)
    monkeypatch.setitem(CATALOG, "fashion-mnist", published_at("fashion-mnist", *addresses, files=files))
    ensure("fashion-mnist", tmp_path)
    assert mirror.requests[0].startswith("empty/")


@pytest.mark.parametrize("name", ["fashion-mnist", "cifar10"])
def test_a_mirror_without_an_answer_is_given_up_in_time(
    tmp_path: Path, black_hole: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert download.SILENCE_S <= 5
    monkeypatch.setattr(download, "SILENCE_S", 0.4)
    monkeypatch.setitem(CATALOG, name, published_at(name, black_hole))
    started = time.monotonic()
    assert "no answer" in refused(name, tmp_path)
    assert time.monotonic() - started < 20


def test_a_name_look_up_that_hangs_is_given_up_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "SILENCE_S", 0.4)
    monkeypatch.setitem(CATALOG, "fashion-mnist", published_at("fashion-mnist", "http://slow.invalid/"))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: time.sleep(60))
    started = time.monotonic()
    assert "no answer" in refused("fashion-mnist", tmp_path)
    assert time.monotonic() - started < 20


def test_no_network_at_all_is_an_error_with_each_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOG, "fashion-mnist", published_at("fashion-mnist", "http://no-such-host.invalid/"))
    message = refused("fashion-mnist", tmp_path)
    assert "no-such-host.invalid" in message
    assert "no apt on this machine" in message
    assert "refused" in refused("cifar10", tmp_path)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path, mirror: Mirror) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--data-dir") as error:
        ensure("fashion-mnist", tmp_path / "file" / "data")
    assert error.value.exit_code == 2


def test_two_processes_at_once_fetch_once(tmp_path: Path, mirror: Mirror) -> None:
    processes = [FORK.Process(target=ensure, args=("fashion-mnist", tmp_path)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
    assert len(mirror.requests) == 4


def test_ctrl_c_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = threading.Event()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        monkeypatch.setitem(
            CATALOG, "fashion-mnist", published_at("fashion-mnist", f"http://127.0.0.1:{listener.getsockname()[1]}/")
        )

        def half_an_answer() -> None:
            connection, _ = listener.accept()
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + bytes(300_000))
            sent.set()
            time.sleep(10)

        threading.Thread(target=half_an_answer, daemon=True).start()
        process = FORK.Process(target=ensure, args=("fashion-mnist", tmp_path))
        process.start()
        assert sent.wait(10)
        _wait_for(lambda: list(tmp_path.glob(".fetching*/**/*.gz")))
        os.kill(process.pid or 0, signal.SIGINT)
        process.join(10)
    assert process.exitcode
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def _wait_for(condition: object, deadline_s: float = 10) -> None:
    assert callable(condition)
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


# The distribution


def test_the_installed_package_is_used_before_the_network(
    tmp_path: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "installed/usr/share/datasets/fashion-mnist", zipped(idx_files()))
    monkeypatch.setattr(fetch, "SYSTEM_ROOT", tmp_path / "installed")
    monkeypatch.setattr(fetch, "is_published", lambda name, contents: True)
    ensure("fashion-mnist", tmp_path / "data")
    assert mirror.requests == []


def test_the_package_comes_without_root_past_a_source_that_fails(
    tmp_path: Path, black_hole: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For real: the system's apt sources, no lists yet, and a third-party source that never answers."""
    monkeypatch.undo()
    if not shutil.which("apt-get"):
        pytest.skip("this system has no apt")
    monkeypatch.setitem(CATALOG, "fashion-mnist", published_at("fashion-mnist"))
    monkeypatch.setattr(fetch, "SYSTEM_ROOT", tmp_path / "not-installed")
    parts = tmp_path / "sources"
    shutil.copytree("/etc/apt/sources.list.d", parts)
    (parts / "third-party.list").write_text(f"deb [trusted=yes] {black_hole} stable main\n")
    (tmp_path / "lists").mkdir()
    config = tmp_path / "apt.conf"
    config.write_text(f'Dir::Etc::SourceParts "{parts}";\nDir::State::Lists "{tmp_path / "lists"}";\n')
    monkeypatch.setenv("APT_CONFIG", str(config))
    started = time.monotonic()
    ensure("fashion-mnist", tmp_path / "data")
    assert time.monotonic() - started < 240
    assert FashionMNIST(tmp_path / "data").data.shape == (60000, 28, 28)
    assert not list((tmp_path / "lists").iterdir())
