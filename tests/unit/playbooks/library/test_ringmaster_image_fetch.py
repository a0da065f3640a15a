"""Fetching the image along a chain: begun once, asked for until it is there, ended for good where it fails."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
import ringmaster_image_fetch
from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.image.delivery import BusyError
from ansible.module_utils.ringmaster.image.unit import PULL

ID = "sha256:" + "a" * 64
OFFER = {
    "name": "127.0.0.1:5870/ringmaster/train@sha256:b",
    "tag": "t",
    "ids": [ID],
    "size": 20_000_000,
    "layers": [{"layer": "l", "blob": "compressed", "bytes": 8_000_000}],
}


class FakeEngine:
    """Has the image once it was pulled."""

    images: ClassVar[dict[str, dict[str, Any]]] = {}

    def inspect(self, name: str) -> dict[str, Any] | None:
        return self.images.get(name)

    def chains(self) -> list[list[str]]:
        return []

    def root(self) -> str:
        return "/"

    def tag(self, image: str, name: str) -> None:
        self.images[name] = {"Id": image, "Size": 1}


class Units:
    """The units of a delivery, as they would be started and stopped."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.ends: list[bool | str] = []
        self.problem = ""
        self.busy = False
        self.alone = True
        self.goes_on = False
        self.left = False

    def claim(self) -> None:
        if self.busy:
            raise BusyError("somebody has been delivering")

    def wait(self, _seconds: float) -> bool:
        end = self.ends.pop(0)
        if isinstance(end, str):
            raise ValueError(end)
        if end:
            FakeEngine.images[OFFER["name"]] = {"Id": ID, "Size": 1}  # type: ignore[index]
        return end


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Units:
    module, units = ringmaster_image_fetch, Units()
    state = Manifest(str(tmp_path / "manifest.json"))
    monkeypatch.setattr(FakeEngine, "images", {})
    monkeypatch.setattr(module, "Manifest", lambda **_: state)
    monkeypatch.setattr(module, "Engine", FakeEngine)
    monkeypatch.setattr(module, "find_image", lambda engine, reference: engine.inspect(reference))
    monkeypatch.setattr(module, "record", lambda _manifest, reference, image, _name: FakeEngine().tag(image, reference))
    monkeypatch.setattr(module, "arrived", lambda blobs: 2_000_000 if blobs == ["compressed"] else 0)
    monkeypatch.setattr(module, "make_room", lambda _blobs: None)
    monkeypatch.setattr(module, "problem", lambda: units.problem)
    monkeypatch.setattr(module, "moved", lambda: ["node2: timed out"])
    monkeypatch.setattr(
        module, "start", lambda _manifest, _delivery, _user, before: units.seen.append(f"relay {before}")
    )
    monkeypatch.setattr(module, "claim", lambda *_, **__: units.claim())
    monkeypatch.setattr(module, "join", lambda *_: units.seen.append("joined"))
    monkeypatch.setattr(module, "renew", lambda _delivery: None)
    monkeypatch.setattr(module, "goes_on", lambda name: units.goes_on and name == OFFER["name"])
    monkeypatch.setattr(module, "leave", lambda _delivery: units.alone)
    monkeypatch.setattr(module, "stop_left", lambda: units.left)
    monkeypatch.setattr(module, "keep_only", lambda: units.seen.append("no blobs"))
    for name, do in (("begin", "pull"), ("stop", "no pull")):
        monkeypatch.setattr(PULL, name, lambda *_, do=do: units.seen.append(do))
    monkeypatch.setattr(PULL, "runs", lambda _name: False)
    monkeypatch.setattr(PULL, "begun", lambda _name: "pull" in units.seen)
    monkeypatch.setattr(PULL, "brings", lambda _name: "pull" in units.seen and units.seen[-1] != "no pull")
    monkeypatch.setattr(PULL, "wait", units.wait)
    return units


def parameters(**more: Any) -> dict[str, Any]:
    known = {
        "reference": ID,
        "offer": OFFER,
        "delivery": {"id": "1"},
        "before": ["node1"],
        "user": "ops",
        "seconds": 60,
        "patience": 8,
    }
    return {**known, **more}


def test_it_is_pulled_once_and_asked_for_until_it_is_there(units: Units) -> None:
    units.ends = [False, False, True]
    assert ringmaster_image_fetch.link(parameters()) == {"changed": True}
    answers = [ringmaster_image_fetch.fetch(parameters()) for _ in range(3)]
    assert answers[0] == answers[1] == {"changed": True, "done": False, "bytes": 2_000_000, "of": 8_000_000}
    assert answers[2]["done"] and answers[2]["changed"] and answers[2]["bytes"] == answers[2]["of"]
    assert answers[2]["moved"] == ["node2: timed out"]
    assert answers[2]["ansible_facts"]["ringmaster_image"]["id"] == ID
    assert units.seen == ["no pull", "relay ['node1']", "pull", "no pull"]


def test_what_came_between_two_questions_is_recorded(units: Units) -> None:
    units.ends = [False, True]
    ringmaster_image_fetch.fetch(parameters())
    FakeEngine.images[ID] = {"Id": ID, "Size": 1}
    answer = ringmaster_image_fetch.fetch(parameters())
    assert answer["changed"] and not answer["present"]
    assert f"127.0.0.1:5870/ringmaster/train:{OFFER['tag']}" in FakeEngine.images
    assert ringmaster_image_fetch.fetch(parameters())["present"]


def test_what_is_there_is_not_fetched(units: Units) -> None:
    FakeEngine.images[ID] = {"Id": ID, "Size": 1}
    assert ringmaster_image_fetch.link(parameters()) == {"changed": False}
    answer = ringmaster_image_fetch.fetch(parameters())
    assert (answer["changed"], answer["present"], answer["moved"]) == (False, True, [])
    assert units.seen == []


def test_a_delivery_that_still_goes_on_here_is_joined(units: Units, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PULL, "runs", lambda name: name == OFFER["name"])
    assert ringmaster_image_fetch.link(parameters()) == {"changed": False}
    assert units.seen == ["joined"]


def test_one_that_has_not_begun_to_pull_is_joined_too(units: Units) -> None:
    """Between its first task here and the second; another one of the same image was refused then."""
    units.goes_on = units.busy = True
    assert ringmaster_image_fetch.link(parameters()) == {"changed": False}
    assert units.seen == ["joined"]
    units.busy = False
    units.seen = ["pull"]  # it has ended
    assert ringmaster_image_fetch.link(parameters()) == {"changed": True}


def test_of_two_that_wait_the_second_finds_the_first(units: Units, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node is claimed with the manifest locked. Who waits for the lock has said before that the delivery goes on."""
    module, state = ringmaster_image_fetch, ringmaster_image_fetch.Manifest()
    monkeypatch.setattr(module, "Manifest", lambda **_: units.seen.append("locked") or state)
    monkeypatch.setattr(module, "claim", lambda *_, **__: units.seen.append("claimed"))
    monkeypatch.setattr(module, "renew", lambda _delivery: units.seen.append("renewed"))
    module.link(parameters())
    assert units.seen == ["locked", "claimed", "no pull", "relay ['node1']"]
    units.seen, units.ends = [], [False]
    module.fetch(parameters())
    assert units.seen == ["renewed", "locked", "pull"]


def test_a_delivery_that_has_just_given_up_is_begun_again(units: Units, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PULL, "runs", lambda name: name == OFFER["name"])
    units.problem = "no node of the chain sends it"
    assert ringmaster_image_fetch.link(parameters()) == {"changed": True}
    assert units.seen == ["no pull", "relay ['node1']"]


def test_another_delivery_is_not_disturbed(units: Units) -> None:
    units.busy, units.alone = True, False
    with pytest.raises(BusyError):
        ringmaster_image_fetch.link(parameters())
    ringmaster_image_fetch.unlink(parameters())
    assert units.seen == []
    units.alone = True
    ringmaster_image_fetch.unlink(parameters())
    assert units.seen == ["no pull", "no blobs"]


def test_the_relay_of_an_interrupted_delivery_that_brought_the_image_is_stopped(units: Units) -> None:
    """It did so after this delivery had found it missing; this one's mark was never made here."""
    FakeEngine.images[ID] = {"Id": ID, "Size": 1}
    units.alone, units.left = False, True
    ringmaster_image_fetch.link(parameters())
    ringmaster_image_fetch.fetch(parameters())
    ringmaster_image_fetch.unlink(parameters())
    assert units.seen == ["no pull", "no blobs"]


def test_another_image_than_the_one_that_was_handed_on_is_refused(units: Units) -> None:
    units.ends = [True]
    with pytest.raises(ValueError, match="the image that arrived is sha256:a"):
        ringmaster_image_fetch.fetch(parameters(offer={**OFFER, "ids": ["sha256:c"]}))


@pytest.mark.parametrize("end", [False, "received unexpected HTTP status: 502 Bad Gateway"])
def test_what_the_relay_says_is_the_reason_and_the_engine_is_not_waited_for(units: Units, end: bool | str) -> None:
    units.ends, units.problem = [end], "no node of the chain sends it"
    with pytest.raises(ValueError, match=r"^no node of the chain sends it$"):
        ringmaster_image_fetch.fetch(parameters())


def test_what_the_engine_says_is_the_reason_where_the_relay_works(units: Units) -> None:
    units.ends = ["no space left on device"]
    with pytest.raises(ValueError, match=r"^no space left on device$"):
        ringmaster_image_fetch.fetch(parameters())


def test_an_image_that_does_not_fit_is_refused_before_it_is_fetched(units: Units) -> None:
    with pytest.raises(ValueError, match=r"it needs 1100000\.0 GB in /.*, .* are free: free some"):
        ringmaster_image_fetch.link(parameters(offer={**OFFER, "size": 10**15}))
    assert "pull" not in units.seen


def test_room_is_needed_where_it_arrives_too(units: Units, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as it hasn't arrived yet; the folder needn't be there."""
    folder = str(tmp_path / "not" / "there")
    monkeypatch.setattr(ringmaster_image_fetch, "FOLDER", folder)
    large = {**OFFER, "size": 0, "layers": [{"layer": "l", "blob": "compressed", "bytes": 10**15}]}
    with pytest.raises(ValueError, match=rf"needs 1100000\.0 GB in .*{folder}, .* are free|needs 2200000\.0 GB in"):
        ringmaster_image_fetch.link(parameters(offer=large))
    assert "pull" not in units.seen
