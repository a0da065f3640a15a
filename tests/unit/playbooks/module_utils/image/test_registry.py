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


def test_a_link_keeps_nothing(blobs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image(blobs, b"layer")
    assert registry.arrived() > 0
    registry.keep_only()
    assert (list(blobs.iterdir()), registry.arrived()) == ([], 0)
    monkeypatch.setattr(registry, "BLOBS", str(blobs / "none"))
    registry.keep_only()
    assert registry.arrived() == 0


def test_a_node_that_fails_again_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_MOVED", str(tmp_path / "moved"))
    assert registry.moved() == []
    (tmp_path / "moved").write_text("node2: timed out\nnode1: refused\nnode2: timed out\n")
    assert registry.moved() == ["node2: timed out", "node1: refused"]
