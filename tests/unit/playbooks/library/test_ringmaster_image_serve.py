"""Handing the image on: pushed once into the relay, asked for until it is there; what is said where it fails."""

from pathlib import Path
from typing import Any

import pytest
import ringmaster_image_serve
from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.image.engine import Engine

ID = "sha256:" + "a" * 64
DIGEST = "sha256:" + "b" * 64
PARAMETERS = {
    "reference": ID,
    "hand_on": True,
    "delivery": {"id": "1"},
    "user": "ops",
    "home": "/home/ops",
    "seconds": 60,
    "patience": 8,
}


class FakeEngine:
    """Has the image."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def inspect(self, _name: str) -> dict[str, Any]:
        return {"Id": ID, "Size": 3, "RootFS": {"Layers": []}}

    def tag(self, _image: str, name: str) -> None:
        self.names.append(name)


class FakePush:
    """A push that takes as many questions as `left` says, and ends so."""

    def __init__(self) -> None:
        self.left: list[bool | str] = []
        self.seen: list[str] = []

    def begun(self, _name: str) -> bool:
        return "push" in self.seen

    def begin(self, verb: str, _name: str, _seconds: float) -> None:
        self.seen.append(verb)

    def wait(self, _seconds: float) -> bool:
        end = self.left.pop(0)
        if isinstance(end, str):
            raise ValueError(end)
        return end

    def said(self) -> str:
        return f"latest: digest: {DIGEST} size: 949\n"

    def stop(self) -> None:
        self.seen.append("no push")


@pytest.fixture
def push(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePush:
    module, push, state, engine = (
        ringmaster_image_serve, FakePush(), Manifest(str(tmp_path / "manifest.json")), FakeEngine(),
    )  # fmt: skip
    monkeypatch.setattr(module, "Manifest", lambda **_: state)
    monkeypatch.setattr(module, "Engine", lambda: engine)
    monkeypatch.setattr(module, "push_of", lambda _delivery: push)
    monkeypatch.setattr(module, "claim", lambda *_, **__: None)
    monkeypatch.setattr(module, "renew", lambda _delivery: push.seen.append("renewed"))
    monkeypatch.setattr(module, "start", lambda *_: push.seen.append("relay"))
    monkeypatch.setattr(module, "filled", lambda: 2_000_000)
    monkeypatch.setattr(module, "problem", lambda: "")
    monkeypatch.setattr(module, "image_of", lambda _digest, _layers: {"config": {"digest": ID}})
    monkeypatch.setattr(module, "forget_old", lambda *_: None)
    monkeypatch.setattr(module, "describe", lambda *_: {})
    return push


def test_it_is_pushed_once_and_asked_for_until_it_is_there(push: FakePush) -> None:
    push.left = [False, False, True]
    answers = [ringmaster_image_serve.served(PARAMETERS) for _ in range(3)]
    goes_on = {"pulled": False, "done": False, "bytes": 2_000_000, "of": 0}
    assert answers[:2] == [{"changed": True, **goes_on}, {"changed": False, **goes_on}]
    assert answers[2]["done"] and answers[2]["offer"]["digest"] == DIGEST
    assert push.seen == ["renewed", "relay", "push", "renewed", "renewed", "no push"]


def test_where_no_other_node_needs_it_nothing_is_pushed(push: FakePush) -> None:
    answer = ringmaster_image_serve.served({**PARAMETERS, "hand_on": False})
    assert (answer["done"], answer["offer"], push.seen) == (True, {}, ["renewed"])


def test_why_the_engine_could_not_push_is_said(push: FakePush) -> None:
    push.left = ["connection refused"]
    with pytest.raises(ValueError, match="can't hand the image to its relay: connection refused"):
        ringmaster_image_serve.served(PARAMETERS)


def test_where_the_node_that_has_it_failed_the_others_say_where_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are asked in turn then, and the way out is that node's."""
    monkeypatch.setattr(ringmaster_image_serve, "find_image", lambda *_: None)
    with pytest.raises(ValueError, match=r"left in this run has the image .*: if one that has it failed, its line"):
        ringmaster_image_serve.obtain(Manifest(lock=False), Engine(), {"reference": ID})
