"""A node whose engine can't give its whole log: a report of its ranks may have been in the part that is lost."""

import time
from collections.abc import Callable
from pathlib import Path

from launcher.base.errors import ExitCode
from launcher.follow.outcome import Outcome
from tests.support.fake_runtime import FakeNode, FakeRuntime
from tests.support.following import follow_with

TORN = "it is torn"
UNKNOWN = "exited with code 1; what failed there is unknown: lines of the node's log are missing (it is torn)"
LOST_PEER = "RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.9]:1"


def raises(node: FakeNode, error: str) -> None:
    node.say("Traceback (most recent call last):")
    node.say(error)
    node.exited(1)
    node.end(1)


def failed(folder: Path, then: Callable[[FakeNode, FakeNode], None], *, torn: str | None = TORN) -> Outcome:
    """Return how a job ended; `torn`: why lines of the second node are missing."""
    runtime = FakeRuntime()

    def ends() -> None:
        runtime.nodes[1].incomplete = torn
        then(*runtime.nodes)

    outcome, _ = follow_with(folder, runtime, ends)
    assert outcome.state == "failed" and outcome.failure is not None
    return outcome


def test_a_rank_that_reported_nothing_was_killed_only_if_nothing_is_missing(tmp_path: Path) -> None:
    for torn, words, signal, code in (
        (None, "killed by SIGKILL", "SIGKILL", ExitCode.FAILED),
        (TORN, UNKNOWN, None, ExitCode.CLUSTER),
    ):
        folder = tmp_path / words[:6]
        folder.mkdir()
        outcome = failed(folder, lambda _, node: node.end(1), torn=torn)
        assert outcome.failure is not None
        found = (outcome.failure.node, outcome.failure.reason, outcome.failure.signal, outcome.exit_code)
        assert found == ("node2", words, signal, code)


def test_a_cause_that_was_read_goes_before_what_is_missing(tmp_path: Path) -> None:
    def fail(one: FakeNode, other: FakeNode) -> None:
        other.end(1)
        raises(one, "ValueError: boom")

    outcome = failed(tmp_path, fail)
    assert outcome.failure is not None and not outcome.failure.suspect
    assert (outcome.failure.node, outcome.failure.reason) == ("node1", "ValueError: boom")


def test_a_node_that_others_lost_is_suspected(tmp_path: Path) -> None:
    def fail(one: FakeNode, other: FakeNode) -> None:
        other.end(1)
        raises(one, LOST_PEER)

    outcome = failed(tmp_path, fail)
    assert outcome.failure is not None
    assert (outcome.failure.node, outcome.failure.reason) == ("node2", f"suspect: {UNKNOWN}")
    assert outcome.failure.suspect and outcome.exit_code == ExitCode.FAILED


def test_a_rank_that_was_seen_to_fail_is_the_cause_on_a_torn_node_too(tmp_path: Path) -> None:
    outcome = failed(tmp_path, lambda _, node: raises(node, "ValueError: boom"))
    assert outcome.failure is not None
    assert (outcome.failure.rank, outcome.failure.reason) == (1, "ValueError: boom")


def test_who_told_a_rank_to_end_may_be_among_what_is_missing(tmp_path: Path) -> None:
    """torchrun does so where another rank has failed; with nothing missing, it was somebody else."""
    for torn, words in ((None, "killed by SIGTERM"), (TORN, UNKNOWN)):
        folder = tmp_path / words[:6]
        folder.mkdir()

        def end(_: FakeNode, node: FakeNode) -> None:
            now = time.time()
            node.exited(143, "SIGTERM", at=now, told={"signal": "SIGTERM", "at": now})
            node.end(1)

        outcome = failed(folder, end, torn=torn)
        assert outcome.failure is not None and outcome.failure.reason == words


def test_of_a_rank_whose_words_may_be_lost_nothing_is_said(tmp_path: Path) -> None:
    outcome = failed(tmp_path, lambda one, _: raises(one, LOST_PEER))
    assert outcome.failure is not None and outcome.failure.suspect
    words = "rank 1 on node2 was not seen to end, and lines of its node's log are missing (it is torn)"
    assert outcome.failure.reason.startswith(f"suspect: {words}; ")
