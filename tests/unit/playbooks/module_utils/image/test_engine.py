"""Images in the engine: found by reference or by the record, named, taken back."""

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any
from urllib.parse import unquote

import pytest
from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.image import look, names, prune, undo
from ansible.module_utils.ringmaster.image.engine import Engine, InUseError, command
from ansible.module_utils.ringmaster.image.names import canonical, find_image, record

ID = "sha256:" + "a" * 64
WANTED = "registry.example:5000/train@sha256:" + "b" * 64


class FakeEngine(ThreadingMixIn, UnixStreamServer):
    """Knows images by their names; the ones in `used` have a container."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.images: dict[str, str] = {}
        self.used: set[str] = set()
        super().__init__(str(path), _Answers)

    def get_request(self) -> tuple[Any, Any]:
        return super().get_request()[0], ("engine", 0)


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        images = self.server.images  # type: ignore[attr-defined]
        name = unquote(self.path).removeprefix("/images/").removesuffix("/json")
        found = images.get(name) or (name if name in images.values() else None)
        self._answer(200 if found else 404, {"Id": found, "RepoDigests": [], "Size": 5_000_000})

    def do_DELETE(self) -> None:
        name = unquote(self.path).removeprefix("/images/")
        if name in self.server.used:  # type: ignore[attr-defined]
            self._answer(409, {"message": "a container uses it"})
        else:
            known = self.server.images.pop(name, None)  # type: ignore[attr-defined]
            self._answer(200 if known else 404, [])

    def _answer(self, status: int, body: object) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_request(self, *_words: object) -> None:
        """Say nothing."""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEngine]:
    monkeypatch.setattr(names, "RECORD", str(tmp_path / "image.json"))
    server = FakeEngine(tmp_path / "engine.sock")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def engine(fake: FakeEngine) -> Engine:
    return Engine(str(fake.server_address), timeout=5)


def test_found_by_the_reference_it_was_pulled_by(fake: FakeEngine, engine: Engine) -> None:
    fake.images[WANTED] = ID
    assert (find_image(engine, WANTED.replace("/train@", "/train:1.2@")) or {})["Id"] == ID


def test_found_by_the_record_where_it_came_from_another_node(fake: FakeEngine, engine: Engine, tmp_path: Path) -> None:
    fake.images["127.0.0.1:5870/ringmaster/train:aaaa"] = ID
    assert find_image(engine, WANTED) is None
    record(Manifest(str(tmp_path / "manifest.json")), WANTED, ID, "127.0.0.1:5870/ringmaster/train@sha256:c")
    assert (find_image(engine, WANTED) or {})["Id"] == ID
    assert find_image(engine, "another@sha256:" + "d" * 64) is None


def test_a_damaged_record_is_none(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "image.json").write_text('["no')
    assert find_image(engine, WANTED) is None


def test_a_tag_beside_the_digest_is_left_out() -> None:
    assert canonical("localhost:5000/a/b:1@" + ID) == "localhost:5000/a/b@" + ID
    assert canonical("localhost:5000/a/b@" + ID) == "localhost:5000/a/b@" + ID
    assert canonical(ID) == ID


def test_no_engine_is_no_image_and_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "process", lambda: None)
    monkeypatch.setattr(look, "Engine", lambda **_: pytest.fail("it was asked"))
    assert look.look_image(WANTED) == {"image": None, "image_serving": False}


def test_a_registry_that_is_left_is_seen_whatever_image_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "serving", lambda: True)
    assert look.look_image("") == {"image": None, "image_serving": True}


def test_an_engine_that_does_not_answer_is_said(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="systemctl start docker"):
        Engine(str(tmp_path / "none.sock")).inspect(ID)


def test_an_engine_that_takes_too_long_is_said(tmp_path: Path) -> None:
    path = str(tmp_path / "stuck.sock")
    with socket.socket(socket.AF_UNIX) as stuck:
        stuck.bind(path)
        stuck.listen()
        with pytest.raises(OSError, match="does not answer within 0 s: `journalctl -u docker`"):
            Engine(path, timeout=0.1).inspect(ID)


def test_a_registry_that_can_not_be_taken_back_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "registry"
    folder.mkdir()
    monkeypatch.setattr(undo, "stop", lambda: None)
    monkeypatch.setattr(undo, "serving", lambda: True)
    with pytest.raises(OSError, match="does not stop"):
        undo.undo_registry({"name": str(folder)})
    monkeypatch.setattr(undo, "serving", lambda: False)
    for _ in range(2):
        undo.undo_registry({"name": str(folder)})
    assert not folder.exists()


def test_a_name_that_is_used_stays(fake: FakeEngine, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.images = {"ours:1": ID, "ours:2": ID}
    fake.used = {"ours:1"}
    with pytest.raises(InUseError):
        engine.untag("ours:1")
    monkeypatch.setattr(undo, "SOCKET", engine.path)
    monkeypatch.setattr(undo, "Engine", lambda: engine)
    for name in ("ours:1", "ours:2", "ours:gone"):
        undo.undo_image({"name": name})
    assert fake.images == {"ours:1": ID}


def test_an_image_whose_only_name_is_ours_was_there_before_and_stays(fake: FakeEngine) -> None:
    fake.images = {"ours:1": ID}
    undo.undo_image({"name": "ours:1", "only_name": True})
    assert fake.images == {"ours:1": ID}


def test_only_the_image_before_the_last_is_kept(fake: FakeEngine, engine: Engine, tmp_path: Path) -> None:
    manifest = Manifest(str(tmp_path / "manifest.json"))
    for name in ("theirs:1", "used:1", "old:1", "before:1", "before@sha256:x", "now:1"):
        fake.images[name] = name.split(":")[0].split("@")[0]
        if name != "theirs:1":
            manifest.note("train_image", "image", name)
    fake.used = {"used:1"}
    prune.forget_old(manifest, engine, "now")
    assert set(fake.images) == {"theirs:1", "used:1", "before:1", "before@sha256:x", "now:1"}
    assert [entry["name"] for entry in manifest.entries] == ["used:1", "before:1", "before@sha256:x", "now:1"]


def test_a_users_logins_count_and_not_the_engine_that_the_user_has_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `docker context use` chooses is in the same file as the logins."""
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker" / "config.json").write_text('{"currentContext": "rootless"}')
    (tmp_path / "docker").write_text("#!/bin/sh\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/user/1000/docker.sock")
    words, environment = command(str(tmp_path), "pull", "x")
    assert words == [str(tmp_path / "docker"), "pull", "x"]
    assert environment["DOCKER_CONFIG"] == str(tmp_path / ".docker")
    assert environment["DOCKER_HOST"] == "unix:///run/docker.sock"
