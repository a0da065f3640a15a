"""Few connections are being opened at a time, and one that sshd turned away is tried again."""

import threading
from types import SimpleNamespace

import pytest

from launcher.ssh import admission
from launcher.ssh.admission import AT_ONCE, admit
from launcher.ssh.pool import open_all
from launcher.ssh.reachability import try_all
from launcher.ssh.refusals import State
from tests.support.cluster.live_engine import until
from tests.support.cluster.sshd import Place


def test_never_more_than_a_handful_at_once() -> None:
    lock, running, most = threading.Lock(), set[int](), [0]
    full = threading.Barrier(AT_ONCE, timeout=20)

    def attempt(item: int, _: threading.Event) -> str:
        with lock:
            running.add(item)
            most[0] = max(most[0], len(running))
        full.wait()  # or fewer than that would run at once
        with lock:
            running.remove(item)
        return f"{item}!"

    assert admit(range(4 * AT_ONCE), attempt, lambda _: False) == [f"{item}!" for item in range(4 * AT_ONCE)]
    assert most[0] == AT_ONCE
    assert admit((), attempt, lambda _: False) == []


def test_one_that_takes_long_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that are off take ten seconds each to be known as such."""
    monkeypatch.setattr(admission, "_PLACE_S", 0.01)
    all_of_them = threading.Barrier(3 * AT_ONCE, timeout=20)
    admit(range(3 * AT_ONCE), lambda item, over: all_of_them.wait(), lambda _: False)


def test_who_is_turned_away_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_PAUSE_S", 0.001)
    tries = dict.fromkeys("abc", 0)

    def attempt(item: str, _: threading.Event) -> bool:
        tries[item] += 1
        return tries[item] == ord(item) - 96

    assert admit("abc", attempt, lambda admitted: not admitted) == [True] * 3
    assert tries == {"a": 1, "b": 2, "c": 3}


def test_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def monotonic() -> float:
        now[0] += 5.0
        return now[0]

    monkeypatch.setattr(admission, "_PAUSE_S", 0.001)
    monkeypatch.setattr(admission, "time", SimpleNamespace(monotonic=monotonic, sleep=lambda _: None))
    tries: list[str] = []
    assert admit("a", lambda item, over: tries.append(item), lambda _: True) == [None]
    assert len(tries) == 6, "in 20 seconds, one in five of them"


def test_who_interrupts_is_waited_for_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(admission, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=interrupt))
    told: list[bool] = []
    with pytest.raises(KeyboardInterrupt):
        admit(range(100), lambda item, over: told.append(over.wait(20)), lambda _: True)
    assert told and all(told) and len(told) < 100


@pytest.fixture
def crowded(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A node that turns away the first six who come."""
    monkeypatch.setattr(admission, "_PAUSE_S", 0.01)
    machine = place.machine()
    place.pin(machine.port, machine.key)
    machine.turns_away = 6
    return place


def test_nodes_behind_a_crowded_sshd_are_reached(crowded: Place) -> None:
    hosts = [crowded.host(crowded.machines[0].port, f"node{number}") for number in range(10)]
    opened, failed = open_all(hosts, crowded.pins)
    for remote in opened.values():
        remote.close()
    assert (list(opened), failed) == ([host.name for host in hosts], {})


def test_they_are_found_reachable_too(crowded: Place) -> None:
    hosts = [crowded.host(crowded.machines[0].port, f"node{number}") for number in range(10)]
    options = {host.name: (*host.ssh.options(""), "-o", f"GlobalKnownHostsFile={crowded.pins}") for host in hosts}
    assert {answer.state for answer in try_all(hosts, options).values()} == {State.OK}


def test_one_that_turns_everybody_away_is_told_as_such(crowded: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_AGAIN_S", 0.1)
    machine = crowded.machines[0]
    machine.turns_away = 1000
    _, failed = open_all([crowded.host(machine.port)], crowded.pins)
    assert failed["node1"].state is State.DOWN
    assert "sshd closed the connection before the login, again and again: too many" in failed["node1"].why
    until(lambda: machine.turns_away < 999)
