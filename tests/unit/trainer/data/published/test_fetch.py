"""Where the data comes from: own copies, the cache, mirrors (simulated on loopback), and the real package."""

import gzip
import hashlib
import http.server
import io
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import socket
import struct
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from torchvision.datasets import CIFAR10, FashionMNIST

from trainer.data.published import fetch, sources
from trainer.data.published.formats import FORMATS
from trainer.errors import UserError

FORK = multiprocessing.get_context("fork")


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
        for name in FORMATS["cifar10"].files
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


@pytest.fixture(autouse=True)
def closed_world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No source of the machine's own: no installed package, no apt, no proxy, no mirror unless the test has one."""
    monkeypatch.setattr(fetch, "SYSTEM_FOLDER", tmp_path / "not-installed")
    monkeypatch.setattr(sources.shutil, "which", lambda program: None)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(FashionMNIST, "mirrors", [])
    monkeypatch.setattr(CIFAR10, "url", f"http://127.0.0.1:{_closed_port()}/{CIFAR10.filename}")


def _closed_port() -> int:
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


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    files = zipped(idx_files()) | {CIFAR10.filename: cifar_archive()}
    server = Mirror(files)
    monkeypatch.setattr(FashionMNIST, "mirrors", [server.url])
    published = [(file, _md5(files[file])) for file, _ in FashionMNIST.resources]
    monkeypatch.setattr(FashionMNIST, "resources", published)
    monkeypatch.setattr(CIFAR10, "url", server.url + CIFAR10.filename)
    monkeypatch.setattr(CIFAR10, "tgz_md5", _md5(files[CIFAR10.filename]))
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


def _md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


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


# The user's own copy


@pytest.mark.parametrize("layout", ["", "FashionMNIST/raw", "raw", "usr/share/datasets/fashion-mnist", "data/fashion"])
@pytest.mark.parametrize("packed", [False, True])
def test_an_own_fashion_mnist_is_found_in_the_usual_layouts(tmp_path: Path, layout: str, packed: bool) -> None:
    own = tmp_path / "own"
    write(own / layout, zipped(idx_files()) if packed else idx_files())
    before = snapshot(own)
    said = ensure("fashion-mnist", tmp_path / "data", own)
    assert [line for line in said if "not the published" in line], "foreign data must be said aloud"
    stored = fetch.obtain("fashion-mnist", data_dir=tmp_path / "data", own_copy=own, say=print)
    assert stored.arrays.train_images.tobytes() == idx_files()["train-images-idx3-ubyte"][16:]
    assert snapshot(own) == before


@pytest.mark.parametrize("form", ["archive", "archive's folder", "folder", "parent"])
def test_an_own_cifar10_is_found_in_the_usual_forms(tmp_path: Path, form: str) -> None:
    own = tmp_path / "own"
    if form.startswith("archive"):
        write(own, {CIFAR10.filename: cifar_archive()})
    else:
        write(own / CIFAR10.base_folder, cifar_files())
    place = {"archive": own / CIFAR10.filename, "folder": own / CIFAR10.base_folder}.get(form, own)
    before = snapshot(own)
    assert "not the published" in ensure("cifar10", tmp_path / "data", place)[-1]
    stored = fetch.obtain("cifar10", data_dir=tmp_path / "data", own_copy=place, say=print)
    assert stored.arrays.train_images.shape == (20, 3, 32, 32)
    assert len(stored.mean) == len(stored.std) == 3
    assert snapshot(own) == before


def test_a_changed_own_copy_is_read_anew_and_an_unchanged_one_is_not(tmp_path: Path) -> None:
    own = write(tmp_path / "own", idx_files())
    ensure("fashion-mnist", tmp_path / "data", own)
    first = snapshot(tmp_path / "data")
    ensure("fashion-mnist", tmp_path / "data", own)
    assert snapshot(tmp_path / "data") == first
    labels = own / "train-labels-idx1-ubyte"
    labels.write_bytes(labels.read_bytes()[:8] + bytes(200))
    stored = fetch.obtain("fashion-mnist", data_dir=tmp_path / "data", own_copy=own, say=print)
    assert not stored.arrays.train_labels.any()


def test_a_missing_own_copy_is_an_error(tmp_path: Path) -> None:
    assert "no such file" in refused("fashion-mnist", tmp_path / "data", tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "train-images-idx3-ubyte" in refused("fashion-mnist", tmp_path / "data", tmp_path / "empty")
    assert "data_batch_1" in refused("cifar10", tmp_path / "data", tmp_path / "empty")


def test_an_own_copy_of_the_published_size_with_other_checksums_is_damaged_unless_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = write(tmp_path / "own", idx_files())
    monkeypatch.setitem(fetch.PUBLISHED_IMAGES, "fashion-mnist", (200, 100))
    message = refused("fashion-mnist", tmp_path / "data", own)
    assert "other checksums" in message and "--other-data" in message and "(3)" in message
    fetch.ensure("fashion-mnist", data_dir=tmp_path / "data", own_copy=own, say=lambda line: None, other_data=True)
    assert fetch.obtain("fashion-mnist", data_dir=tmp_path / "data", own_copy=own, say=lambda line: None)


def test_an_own_copy_that_lacks_a_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    own = write(tmp_path / "own", idx_files())
    (own / "t10k-labels-idx1-ubyte").unlink()
    assert "lacks t10k-labels-idx1-ubyte" in refused("fashion-mnist", tmp_path / "data", own)


@pytest.mark.parametrize("place", [5, 500, -6, -1])
@pytest.mark.parametrize("file", ["train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"])
def test_an_own_gz_with_a_cut_or_a_flipped_bit_is_an_error_that_names_it(tmp_path: Path, file: str, place: int) -> None:
    own = write(tmp_path / "own", zipped(idx_files()))
    whole = (own / file).read_bytes()
    place %= len(whole)
    (own / file).write_bytes(whole[:place])
    assert file in refused("fashion-mnist", tmp_path / "data", own)
    if place > 10:  # before that lie gzip's flags and time, which carry no data
        (own / file).write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        assert file in refused("fashion-mnist", tmp_path / "data", own)
    assert not list((tmp_path / "data").rglob("*ubyte*"))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_an_own_cifar_archive_that_is_cut_or_flipped_is_an_error(tmp_path: Path, share: float) -> None:
    whole = cifar_archive()
    place = int(len(whole) * share)
    own = tmp_path / "cifar.tar.gz"
    own.write_bytes(whole[:place])
    assert "cifar.tar.gz" in refused("cifar10", tmp_path / "data", own)
    own.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
    assert "cifar.tar.gz" in refused("cifar10", tmp_path / "data", own)


def test_an_own_cifar_batch_that_runs_code_is_refused(tmp_path: Path) -> None:
    own = write(tmp_path / "own", cifar_files())
    target = tmp_path / "ran"
    (own / "data_batch_3").write_bytes(b"cos\nsystem\n(S'touch " + os.fsencode(target) + b"'\ntR.")
    assert "data_batch_3" in refused("cifar10", tmp_path / "data", own)
    assert not target.exists()


def test_the_synthetic_set_needs_nothing_and_says_so(tmp_path: Path) -> None:
    assert ensure("synthetic", tmp_path / "data") == []
    assert "not used" in ensure("synthetic", tmp_path / "data", tmp_path)[0]
    assert not (tmp_path / "data").exists()


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
    monkeypatch.setattr(FashionMNIST, "resources", [(file, "0" * 32) for file, _ in FashionMNIST.resources])
    assert "wrong checksum" in refused("fashion-mnist", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_the_second_mirror_is_tried_when_the_first_has_nothing(
    tmp_path: Path, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FashionMNIST, "mirrors", [f"{mirror.url}empty/", mirror.url])
    ensure("fashion-mnist", tmp_path)
    assert mirror.requests[0].startswith("empty/")


@pytest.mark.parametrize("name", ["fashion-mnist", "cifar10"])
def test_a_mirror_without_an_answer_is_given_up_in_time(
    tmp_path: Path, black_hole: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert sources.SILENCE_S <= 5
    monkeypatch.setattr(sources, "SILENCE_S", 0.4)
    monkeypatch.setattr(FashionMNIST, "mirrors", [black_hole])
    monkeypatch.setattr(CIFAR10, "url", black_hole + CIFAR10.filename)
    started = time.monotonic()
    assert "no answer" in refused(name, tmp_path)
    assert time.monotonic() - started < 20


def test_a_name_look_up_that_hangs_is_given_up_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SILENCE_S", 0.4)
    monkeypatch.setattr(FashionMNIST, "mirrors", ["http://slow.invalid/"])
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: time.sleep(60))
    started = time.monotonic()
    assert "no answer" in refused("fashion-mnist", tmp_path)
    assert time.monotonic() - started < 20


def test_no_network_at_all_is_an_error_with_each_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FashionMNIST, "mirrors", ["http://no-such-host.invalid/"])
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
        monkeypatch.setattr(FashionMNIST, "mirrors", [f"http://127.0.0.1:{listener.getsockname()[1]}/"])

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
    write(tmp_path / "installed", zipped(idx_files()))
    monkeypatch.setattr(fetch, "SYSTEM_FOLDER", tmp_path / "installed")
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
    monkeypatch.setattr(FashionMNIST, "mirrors", [])
    monkeypatch.setattr(fetch, "SYSTEM_FOLDER", tmp_path / "not-installed")
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
