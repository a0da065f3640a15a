"""Which of several pieces of evidence decides how a job ended."""

import signal
from dataclasses import replace
from typing import Any

import pytest

from launcher.base.errors import ExitCode
from launcher.follow.cause.failure import Failure
from launcher.follow.node_state import ToldToGo
from launcher.follow.outcome import Evidence, decide
from tests.support.ends import end

NOT_STARTED = Failure(node="node1", rank=None, exit_code=None, signal=None, reason="busy", log_tail=(), hint=None)
WELL = Evidence(
    start_failure=None,
    detached_by=None,
    stopped_by=None,
    ends=(end(0, exit_code=0), end(1, exit_code=0)),
    out_of_memory=False,
    refused=False,
    bundled=False,
    unseen="",
)
UNSEEN = replace(WELL, unseen="node2: container gone; node1 ended with 0")
FAILED = replace(WELL, ends=(end(0, exit_code=0), end(1, exit_code=3)))


@pytest.mark.parametrize(
    ("evidence", "state", "code"),
    [
        (WELL, "succeeded", ExitCode.SUCCEEDED),
        (FAILED, "failed", ExitCode.FAILED),
        (replace(FAILED, unseen=UNSEEN.unseen), "failed", ExitCode.FAILED),
        (UNSEEN, "unknown", ExitCode.CLUSTER),
        (replace(UNSEEN, ends=()), "unknown", ExitCode.CLUSTER),
        (replace(UNSEEN, stopped_by=signal.SIGTERM), "stopped", ExitCode.TERMINATED),
        (replace(UNSEEN, detached_by=signal.SIGINT), "detached", ExitCode.INTERRUPTED),
        (replace(FAILED, stopped_by=signal.SIGINT), "stopped", ExitCode.INTERRUPTED),
        (replace(FAILED, stopped_by=signal.SIGTERM), "stopped", ExitCode.TERMINATED),
        (replace(FAILED, stopped_by=signal.SIGINT, detached_by=signal.SIGHUP), "detached", ExitCode.TERMINATED),
        (replace(WELL, detached_by=signal.SIGINT), "detached", ExitCode.INTERRUPTED),
        (replace(WELL, start_failure=NOT_STARTED, stopped_by=signal.SIGINT), "failed", ExitCode.NOT_STARTED),
    ],
)
def test_the_first_that_applies_decides(evidence: Evidence, state: str, code: ExitCode) -> None:
    outcome = decide(evidence)
    assert (outcome.state, outcome.exit_code) == (state, code)
    assert outcome.started is (evidence.start_failure is None)
    assert (outcome.failure is not None) is (state in {"failed", "unknown"})


def test_an_end_that_nobody_saw_blames_nobody_and_says_what_is_missing() -> None:
    failure = decide(UNSEEN).failure
    assert failure and (failure.node, failure.rank, failure.exit_code, failure.signal) == (None, None, None, None)
    assert failure.reason == "node2: container gone; node1 ended with 0"


@pytest.mark.parametrize(
    ("fields", "more", "code"),
    [
        ({"exit_code": 3}, {"bundled": True}, ExitCode.NOT_STARTED),
        ({"exit_code": 5}, {"bundled": True}, ExitCode.FAILED),
        ({"exit_code": 3}, {"refused": True}, ExitCode.NOT_STARTED),
        ({"exit_code": 137, "signal": "SIGKILL"}, {}, ExitCode.FAILED),
        ({"rank": None, "exit_code": 137, "signal": "SIGKILL"}, {}, ExitCode.CLUSTER),
        ({"rank": None, "exit_code": 137, "signal": "SIGKILL"}, {"out_of_memory": True}, ExitCode.FAILED),
        ({"rank": None, "lost": "no answer"}, {"refused": True}, ExitCode.CLUSTER),
    ],
)
def test_the_code_of_a_failure(fields: dict[str, Any], more: dict[str, Any], code: ExitCode) -> None:
    assert decide(replace(WELL, ends=(end(**fields),), **more)).exit_code == code


UNSAVED = "trainer: error: the last checkpoint, of step 7, could not be saved"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_that_cost_steps_is_no_clean_one(number: int) -> None:
    """The trainer ends with 4 where it could save nothing; the other ranks end with the same code, in silence."""
    told = {"exit_code": 4, "stopped_by_us": True}
    ends = (end(0, **told, lines=("step 7", UNSAVED)), end(1, **told, lines=()))
    outcome = decide(replace(WELL, ends=ends, stopped_by=number, bundled=True))
    assert (outcome.state, outcome.exit_code) == ("failed", ExitCode.CLUSTER)
    assert outcome.failure is not None and outcome.failure.reason == f"exited with code 4: {UNSAVED}"
    assert outcome.failure.rank == 0
    script = decide(replace(WELL, ends=ends, stopped_by=number))
    assert (script.state, script.failure) == ("stopped", None), "a script may mean anything by a 4"
    killed = end(0, exit_code=137, signal="SIGKILL", stopped_by_us=True)
    assert decide(replace(WELL, ends=(killed,), stopped_by=number, bundled=True)).state == "stopped"


def unsaved(**fields: Any) -> Evidence:
    """What is known where the trainer could save nothing: it ends with 4, as its other ranks do in silence."""
    ends = (end(0, exit_code=4, lines=("step 7", UNSAVED), **fields), end(1, exit_code=4, **fields))
    return replace(WELL, ends=ends, bundled=True, unseen="node0, node1: ended with 1")


def test_a_stop_by_another_launcher_that_cost_steps_is_no_clean_one_either() -> None:
    known = unsaved(told_at=90.0)
    outcome = decide(replace(known, ends=(*known.ends, end(None, exit_code=1))))  # and torchrun ends with 1
    assert (outcome.state, outcome.exit_code) == ("failed", ExitCode.CLUSTER)
    assert outcome.failure is not None and outcome.failure.reason == f"exited with code 4: {UNSAVED}"


def test_a_node_that_was_told_to_go_stays_known_where_that_cost_steps() -> None:
    told = ToldToGo(node="node1", signal="SIGTERM", at=90.0, unsure_s=0.25)
    outcome = decide(replace(unsaved(told_at=90.0), told=(told,)))
    assert (outcome.state, outcome.exit_code, outcome.told) == ("failed", ExitCode.CLUSTER, ("node1",))
