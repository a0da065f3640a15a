"""Whether a node that we don't reach is lost: only if what had answered a peer does so no more."""

import json

import pytest

from launcher.cluster.peer_view import PeerView, Verdict, judge, parse, question, sum_up

RUNS, SILENT, UNKNOWN = Verdict.RUNS, Verdict.SILENT, Verdict.UNKNOWN
WELL = PeerView(ports={22: "greets", 1: "refuses"})
CLOSED_INSIDE = PeerView(ports={22: "nothing", 1: "nothing"})


def seen(ssh: str, other: str = "nothing", heard_s: float | None = None, *, stuck: bool = False) -> PeerView:
    return PeerView(ports={22: ssh, 1: other}, heard_s=heard_s, stuck=stuck)


@pytest.mark.parametrize(
    ("now", "before", "verdict"),
    [
        (seen("greets"), WELL, RUNS),
        (seen("closes"), WELL, RUNS),
        (seen("refuses"), WELL, RUNS),
        (seen("nothing", "refuses"), WELL, RUNS),
        (seen("nothing"), WELL, SILENT),
        (seen("silent", "refuses"), WELL, SILENT),
        (seen("silent", "refuses"), None, RUNS),
        (seen("silent"), None, UNKNOWN),
        # SSH is closed inside the cluster: that it doesn't answer says nothing.
        (seen("nothing"), CLOSED_INSIDE, UNKNOWN),
        (seen("nothing"), None, UNKNOWN),
        (seen("nothing", heard_s=0.2), CLOSED_INSIDE, RUNS),
        (seen("nothing", heard_s=19.0), CLOSED_INSIDE, UNKNOWN),
        (seen("nothing", heard_s=25.0, stuck=True), CLOSED_INSIDE, SILENT),
        (seen("nothing", heard_s=25.0, stuck=True), None, SILENT),
        (seen("refuses", stuck=True), CLOSED_INSIDE, RUNS),
        (seen("nothing", "silent"), PeerView(ports={22: "nothing", 1: "silent"}), UNKNOWN),
        (seen("nothing", "nothing"), PeerView(ports={22: "nothing", 1: "silent"}), SILENT),
    ],
)
def test_what_a_peer_can_say(now: PeerView, before: PeerView | None, verdict: Verdict) -> None:
    assert judge(now, before, silent_s=20.0) is verdict


def test_who_hears_the_node_outweighs_the_others() -> None:
    assert sum_up({"a": SILENT, "b": RUNS, "c": UNKNOWN}) == (RUNS, ["b"])
    assert sum_up({"a": SILENT, "b": UNKNOWN, "c": SILENT}) == (SILENT, ["a", "c"])
    assert sum_up({"a": UNKNOWN}) == (UNKNOWN, ["a"])
    assert sum_up({}) == (UNKNOWN, [])


def test_a_login_may_print_something_before_the_answer() -> None:
    answer = json.dumps({"ports": {"22": "greets"}, "heard_s": 1.5, "stuck": False})
    assert parse(f"Welcome!\n{answer}\n") == PeerView(ports={22: "greets"}, heard_s=1.5)
    for none in ("", "Welcome!", "[]", '{"ports": 1}'):
        assert parse(none) is None


def test_each_port_is_asked_once() -> None:
    assert question("10.0.0.2", 22)[-3:] == ["10.0.0.2", "22", "1"]
    assert question("10.0.0.2", 2222)[-4:] == ["10.0.0.2", "2222", "22", "1"]
