"""Which of several pieces of evidence decides how a job ended."""

import signal
from dataclasses import replace
from typing import Any

import pytest

from launcher.base.errors import ExitCode
from launcher.follow.failure import Failure
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
)
FAILED = replace(WELL, ends=(end(0, exit_code=0), end(1, exit_code=3)))


@pytest.mark.parametrize(
    ("evidence", "state", "code"),
    [
        (WELL, "succeeded", ExitCode.SUCCEEDED),
        (FAILED, "failed", ExitCode.FAILED),
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
    assert (outcome.failure is not None) is (state == "failed")


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
