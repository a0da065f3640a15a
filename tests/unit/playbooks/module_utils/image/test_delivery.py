"""Two deliveries on one node: which may use the relay, which is refused, and who stops it in the end."""

import os
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.ringmaster.image import delivery, registry
from ansible.module_utils.ringmaster.image.delivery import BusyError

ANN = {"id": "1", "by": "ann on desk", "since": 14 * 3600 + 300}
BOB = {"id": "2", "by": "bob on lap", "since": 15 * 3600}
LONG_AGO = (1, 1)


class Relay:
    """The relay on this node, and how often somebody looked whether it is free."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark
        self.active = True
        self.sending = 0
        self.stopped = 0
        self.looks = 0
        self.renewed_at_look = 0

    def state(self, _port: int) -> dict[str, Any]:
        return {"sending": self.sending}

    def stop(self) -> None:
        self.stopped += 1

    def sleep(self, _seconds: float) -> None:
        self.looks += 1
        if self.looks == self.renewed_at_look:
            os.utime(self.mark, ns=(2 * 10**18, 2 * 10**18))  # in 2033: never old
        assert self.looks < 1000, "it waits for ever"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Relay:
    here = Relay(tmp_path / "delivery.json")
    monkeypatch.setattr(registry, "_MARK", str(here.mark))
    monkeypatch.setattr(registry, "_active", lambda: here.active)
    monkeypatch.setattr(registry, "stop", here.stop)
    monkeypatch.setattr(registry.relay, "state", here.state)
    monkeypatch.setattr(registry.relay, "answers", lambda _port: True)
    monkeypatch.setattr(registry.time, "sleep", here.sleep)
    return here


def take(own: dict[str, Any], *, first: bool = False) -> None:
    delivery.take(registry._MARK, own, first=first, user="ops")


def claim(own: dict[str, Any], *, first: bool = False, user: str = "ops") -> None:
    registry.claim(own, user, first=first)


def test_the_second_is_refused_with_who_since_when_and_what_to_do(here: Relay) -> None:
    take(ANN)
    here.renewed_at_look = 3
    with pytest.raises(
        BusyError, match=r"^ann on desk has been .* here since 14:05 UTC: wait until .* run this again$"
    ):
        claim(BOB)
    assert (here.looks, here.stopped) == (3, 0)
    claim(ANN)


@pytest.mark.parametrize("first", [True, False])
def test_an_interrupted_one_is_replaced(here: Relay, first: bool) -> None:
    claim(BOB)
    take(ANN, first=first)
    os.utime(here.mark, LONG_AGO)
    claim(BOB)
    delivery.renew(str(here.mark), BOB)
    assert not delivery.fresh(str(here.mark), 100)
    take(ANN, first=first)
    here.active = False
    claim(BOB)


def test_a_link_goes_on_with_its_image_while_it_is_renewed(here: Relay) -> None:
    assert not registry.goes_on("one")
    take({**ANN, "image": "one"})
    assert (registry.goes_on("one"), registry.goes_on("other")) == (True, False)
    os.utime(here.mark, LONG_AGO)
    assert not registry.goes_on("one")
    os.utime(here.mark)
    here.active = False
    assert not registry.goes_on("one")


def test_two_that_begin_here_share_the_relay_and_the_last_one_stops_it(here: Relay) -> None:
    take(ANN, first=True)
    claim(BOB, first=True)
    with pytest.raises(BusyError):
        here.renewed_at_look = 1
        claim(BOB, first=True, user="another")
    registry.start(None, BOB, "ops")  # type: ignore[arg-type]  # it changes nothing
    here.sending = 1
    assert not registry.leave(ANN)
    assert not registry.leave(BOB)  # Ann's nodes still fetch
    here.sending = 0
    assert here.stopped == 0
    assert registry.leave(ANN)
    assert (here.stopped, here.mark.exists()) == (1, False)


def test_a_node_that_failed_and_still_fetches_keeps_no_relay_running(here: Relay) -> None:
    take(ANN, first=True)
    here.sending = 1
    assert registry.leave(ANN)
    assert here.stopped == 1


def test_one_that_begins_here_is_not_stopped_by_one_that_passes(here: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks the first node for its progress, so that it sends counts instead."""
    take(ANN, first=True)
    os.utime(here.mark, LONG_AGO)
    here.sending = 1
    monkeypatch.setattr(delivery, "STALE_S", -1)  # no patience
    with pytest.raises(BusyError):
        claim(BOB)


def test_what_was_interrupted_is_stopped_and_what_goes_on_is_not(here: Relay) -> None:
    take(ANN)
    assert not registry.stop_left()
    os.utime(here.mark, LONG_AGO)
    assert registry.stop_left()
    assert not here.mark.exists()
    assert registry.stop_left()  # an older version's, without a mark
    assert here.stopped == 2
