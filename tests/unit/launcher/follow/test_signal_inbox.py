"""What a signal means depends on why we follow, and on whether the job can do without us."""

import signal
from itertools import product

import pytest

from launcher.follow.signal_inbox import Meaning, Role, SignalInbox, meaning

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def role(*, only_follows: bool = False, stops: bool = False, survives: bool = False) -> Role:
    return Role(only_follows=only_follows, stops=stops, survives=survives)


@pytest.mark.parametrize(("signum", "survives", "since_last_s"), [*product(SIGNALS, (False, True), (None, 0.1))])
def test_whoever_only_follows_detaches_whatever_comes(signum: int, survives: bool, since_last_s: float | None) -> None:
    assert meaning(signum, role(only_follows=True, survives=survives), since_last_s=since_last_s) is Meaning.DETACH


@pytest.mark.parametrize(
    ("survives", "stops", "expected"),
    [
        (False, False, Meaning.STOP),
        (False, True, Meaning.STOP),
        (True, False, Meaning.DETACH),
        (True, True, Meaning.NOTHING),
    ],
)
def test_a_closed_terminal(survives: bool, stops: bool, expected: Meaning) -> None:
    assert meaning(signal.SIGHUP, role(survives=survives, stops=stops), since_last_s=None) is expected


@pytest.mark.parametrize(
    ("signum", "since_last_s", "expected"),
    [
        (signal.SIGTERM, 0.5, Meaning.NOTHING),
        (signal.SIGTERM, 1.5, Meaning.STOP),
        (signal.SIGHUP, 0.5, Meaning.NOTHING),
        (signal.SIGINT, 0.0, Meaning.STOP),
    ],
)
def test_an_echo_is_no_second_request_and_ctrl_c_never_is_an_echo(
    signum: int, since_last_s: float, expected: Meaning
) -> None:
    assert meaning(signum, role(), since_last_s=since_last_s) is expected


def test_the_inbox_keeps_the_requests_in_order_and_gives_the_handlers_back() -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    inbox = SignalInbox(role(), (signal.SIGTERM,))
    assert (inbox.any_came, inbox.decides) == (False, True), "as if received already, but not while we followed"
    with inbox.receiving():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
    assert inbox.stop_requests == [signal.SIGTERM, signal.SIGINT], "the second SIGTERM is an echo"
    assert inbox.any_came
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_a_closed_terminal_that_the_job_survives_makes_no_later_signal_an_echo() -> None:
    inbox = SignalInbox(role(stops=True, survives=True))
    with inbox.receiving():
        signal.raise_signal(signal.SIGHUP)
        assert not inbox.any_came and not inbox.decides
        signal.raise_signal(signal.SIGTERM)
    assert inbox.stop_requests == [signal.SIGTERM]
