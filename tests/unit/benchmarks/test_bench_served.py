"""Processes that wait for their turn."""

import pytest

from benchmarks.served import Served
from launcher.base.errors import ExitCode, RingmasterError

MODULE = "tests.unit.benchmarks.answers"


def test_each_question_has_its_answer_and_prints_are_none() -> None:
    with Served(MODULE, {"a": 1}) as process:
        assert [process.ask("words", count) for count in (1, 2)] == [[{"a": 1}, 1], [{"a": 1}, 2]]


def test_one_that_fails_says_why_and_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    with Served(MODULE, {}) as process, pytest.raises(RingmasterError, match="answers failed, see above") as caught:
        process.ask("words", -1)
    assert caught.value.exit_code == ExitCode.FAILED
    assert "ValueError: below nothing" in capfd.readouterr().err


def test_one_that_takes_too_long_is_ended() -> None:
    with Served(MODULE, {}, limit=0.3) as process, pytest.raises(RingmasterError, match=r"no answer after 0\.3 s"):
        process.ask("sleep", 60)


def test_one_that_never_started_is_named_too() -> None:
    with Served("tests.unit.benchmarks.nowhere", {}) as process, pytest.raises(RingmasterError, match="nowhere failed"):
        process.ask("words", 1)
