"""What stays of a relay: the blobs of one image."""

import hashlib
import json
from pathlib import Path

import pytest
from ansible.module_utils.ringmaster.image import registry


@pytest.fixture
def blobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(registry, "BLOBS", str(tmp_path / "blobs"))
    (tmp_path / "blobs").mkdir()
    return tmp_path / "blobs"


def put(blobs: Path, content: bytes) -> str:
    name = hashlib.sha256(content).hexdigest()
    (blobs / name).write_bytes(content)
    return f"sha256:{name}"


def image(blobs: Path, *layers: bytes) -> str:
    config = put(blobs, b"config of " + b"".join(layers))
    parts = [{"digest": put(blobs, layer)} for layer in layers]
    return put(blobs, json.dumps({"config": {"digest": config}, "layers": parts}).encode())


def test_only_the_last_image_is_kept(blobs: Path) -> None:
    image(blobs, b"shared", b"old")
    wanted = image(blobs, b"shared", b"new")
    (blobs / "moved").touch()
    (blobs / "0.upload").touch()
    registry.keep_only(wanted)
    assert {path.read_bytes() for path in blobs.iterdir() if path.name != wanted.partition(":")[2]} == {
        b"shared", b"new", b"config of sharednew"
    }  # fmt: skip


def test_an_index_is_kept_with_the_images_that_were_pushed(blobs: Path) -> None:
    one = image(blobs, b"one")
    both = [{"digest": one}, {"digest": "sha256:" + "0" * 64}]
    index = put(blobs, json.dumps({"manifests": both}).encode())
    registry.keep_only(index)
    assert len(list(blobs.iterdir())) == 4


def test_of_an_index_the_image_is_taken_and_not_what_is_said_of_its_build(blobs: Path) -> None:
    """The layers of an index were unknown: no room was checked, and an engine of another kind had another ID."""
    said, wanted = image(blobs, b"said"), image(blobs, b"layer")
    parts = [{"digest": said, "platform": {"os": "unknown"}}, {"digest": wanted, "platform": {"os": "linux"}}]
    index = put(blobs, json.dumps({"manifests": [{"digest": "sha256:" + "0" * 64}, *parts]}).encode())
    assert registry.image_of(index, 1) == registry.image_of(wanted, 1) == registry.content_of(wanted)
    assert "manifests" in registry.image_of(index, 5)


def test_a_link_keeps_nothing(blobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image(blobs, b"layer")
    registry.keep_only()
    assert list(blobs.iterdir()) == []
    monkeypatch.setattr(registry, "BLOBS", str(blobs / "none"))
    registry.keep_only()
    registry.make_room(["one"])


def test_only_what_arrives_now_counts_and_the_rest_makes_room(blobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[bool] = []
    monkeypatch.setattr(registry, "stop", lambda: stopped.append(True))
    for name, size in (("whole", 5), ("half.part", 20), ("of-another-image", 300), ("other.part", 4000), ("boot", 1)):
        (blobs / name).write_bytes(bytes(size))
    now = ["whole", "half", "to-come"]
    assert registry.arrived(now) == 25
    registry.make_room([])  # nobody knows what belongs to it
    assert len(list(blobs.iterdir())) == 5
    registry.make_room(now)
    assert {path.name for path in blobs.iterdir()} == {"whole", "half.part", "boot"}
    assert stopped == [True, True]


def test_why_systemd_starts_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was the whole command, and its exit code."""
    program = tmp_path / "systemd-run"
    program.write_text(
        "#!/bin/sh\necho 'Failed to start transient service unit: Unit x was already loaded.' >&2; exit 1"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(OSError, match=r"^x can't be started: Failed to start .*: Unit x was already loaded\.$"):
        registry.run_unit("x", "true")


def test_a_node_that_fails_again_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_MOVED", str(tmp_path / "moved"))
    assert registry.moved() == []
    (tmp_path / "moved").write_text("node2: timed out\nnode1: refused\nnode2: timed out\n")
    assert registry.moved() == ["node2: timed out", "node1: refused"]
