"""The root cause is the rank that failed by itself, not the ranks that lost it."""

from typing import Any

import pytest

from launcher.follow.cause.suspects import root_cause
from tests.support.ends import RAISED, end

PEER = (
    "Traceback (most recent call last):",
    "  work.wait()",
    "RuntimeError: [pair.cc:561] Connection closed by peer [127.0.0.1]:1",
)


def test_all_well() -> None:
    assert root_cause([end(0, exit_code=0), end(1, exit_code=0)]) is None


def test_the_rank_that_raised_and_not_the_one_that_lost_its_peer() -> None:
    # The peer's end was noticed first, and its traceback came first too.
    failure = root_cause([end(0, lines=PEER, error_at=98.0, ended_at=99.0), end(1, lines=RAISED, error_at=98.5)])
    assert failure is not None
    assert (failure.node, failure.rank, failure.reason) == ("node1", 1, "ValueError: boom")
    assert failure.log_tail == RAISED


def test_a_killed_rank_explains_the_others() -> None:
    killed = end(2, exit_code=137, signal="SIGKILL", ended_at=101.0)
    failure = root_cause([end(0, lines=PEER, error_at=99.0), killed])
    assert failure is not None
    assert (failure.rank, failure.signal, failure.reason) == (2, "SIGKILL", "killed by SIGKILL")
    assert failure.hint is not None and "memory" in failure.hint


ABORT = ("terminate called without an active exception", "Fatal Python error: Aborted", "", "Thread 0x1 (most recent …")
"""Of one of Gloo's threads, caught by the end of Python."""
HANDLED = ("Traceback (most recent call last):", "  1 / 0", "ZeroDivisionError: division by zero", "goes on")


def test_an_abort_while_python_ends_hides_neither_the_exception_nor_the_lost_peer() -> None:
    aborted: dict[str, Any] = {"exit_code": 134, "signal": "SIGABRT"}
    victim = end(0, lines=(*PEER, *ABORT), error_at=98.0, **aborted)
    failure = root_cause([victim, end(1, lines=(*RAISED, *ABORT), error_at=98.5, **aborted)])
    assert failure is not None
    assert (failure.rank, failure.exit_code, failure.signal, failure.reason) == (1, 1, None, "ValueError: boom")
    assert failure.log_tail == RAISED


@pytest.mark.parametrize(
    ("lines", "hint"),
    [((*HANDLED, *ABORT), "docs/jobs.md"), (("epoch 8", *ABORT), "docs/jobs.md"), (RAISED, "gave up")],
)
def test_any_other_abort_is_the_cause(lines: tuple[str, ...], hint: str) -> None:
    failure = root_cause([end(1, lines=lines, exit_code=134, signal="SIGABRT", error_at=98.5)])
    assert failure is not None and failure.reason == "killed by SIGABRT" and hint in (failure.hint or "")


def test_ranks_that_were_told_to_stop_explain_nothing() -> None:
    stopped = end(0, exit_code=143, signal="SIGTERM", stopped_by_us=True, ended_at=1.0)
    failure = root_cause([stopped, end(1, lines=RAISED, error_at=98.5)])
    assert failure is not None and failure.rank == 1


def test_a_rank_that_lost_its_peer_and_was_then_told_to_stop_explains_nothing_either() -> None:
    stopped = end(0, exit_code=143, signal="SIGTERM", stopped_by_us=True, lines=PEER, error_at=97.0)
    failure = root_cause([stopped, end(1, exit_code=137, signal="SIGKILL", ended_at=98.0)])
    assert failure is not None and failure.rank == 1


def test_an_error_that_was_handled_explains_nothing() -> None:
    stopped = end(0, exit_code=143, signal="SIGTERM", stopped_by_us=True, lines=HANDLED, error_at=90.0)
    failure = root_cause([stopped, end(1, lines=RAISED, error_at=98.5)])
    assert failure is not None and (failure.rank, failure.reason) == (1, "ValueError: boom")


def test_an_exit_code_other_than_1_is_no_exception() -> None:
    failure = root_cause([end(0, exit_code=3, lines=(*HANDLED, "validation failed"), error_at=90.0)])
    assert failure is not None and failure.reason == "exited with code 3: validation failed"


def test_a_rank_that_is_slow_to_die_of_its_error_is_still_the_cause() -> None:
    dying = end(1, exit_code=143, signal="SIGTERM", stopped_by_us=True, lines=RAISED, error_at=97.0)
    failure = root_cause([end(0, lines=PEER, error_at=97.5), dying])
    assert failure is not None and (failure.rank, failure.reason) == (1, "ValueError: boom")


def test_a_rank_that_says_why_goes_before_those_that_follow_in_silence() -> None:
    failure = root_cause([end(1, exit_code=2, ended_at=1.0), end(0, exit_code=2, ended_at=2.0, lines=("no data",))])
    assert failure is not None and failure.rank == 0


def test_of_two_that_raised_the_first() -> None:
    failure = root_cause([end(0, lines=RAISED, error_at=99.0), end(1, lines=RAISED, error_at=98.5)])
    assert failure is not None and failure.rank == 1


def test_where_all_have_only_lost_peers_nobody_is_named() -> None:
    failure = root_cause([end(0, lines=PEER, error_at=98.0), end(1, lines=PEER, error_at=97.0)])
    assert failure is not None and not failure.suspect
    assert (failure.node, failure.rank) == (None, None)
    assert failure.reason.startswith("unknown: each rank speaks only of others; first rank 1 on node1: RuntimeError")


def test_an_exit_code_with_the_last_line() -> None:
    failure = root_cause([end(0, exit_code=5, lines=("trainer: error: no", "  "))])
    assert failure is not None and failure.reason == "exited with code 5: trainer: error: no"


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried", "smaller batch"),
        ("OSError: [Errno 28] No space left on device", "df -h"),
        ("x.py: error: unrecognized arguments: --local-rank=0", "LAUNCH_STYLE=0"),
        ("x.py: error: the following arguments are required: data, --local_rank", "LAUNCH_STYLE=--local_rank"),
        ("x.py: error: the following arguments are required: --local-rank", "LAUNCH_STYLE=1"),
        ("RuntimeError: something else", None),
    ],
)
def test_hints(line: str, hint: str | None) -> None:
    failure = root_cause([end(0, lines=("Traceback (most recent call last):", " x", line))])
    assert failure is not None
    assert hint in failure.hint if hint and failure.hint else failure.hint is hint


def test_memory_that_ran_out_says_where() -> None:
    failure = root_cause([end(1, exit_code=137, signal="SIGKILL", out_of_memory="node2 (limit 512 MiB)")])
    assert failure is not None
    assert (failure.reason, failure.signal) == ("out of memory on node2 (limit 512 MiB)", "SIGKILL")
    assert failure.hint is not None and "a node with more memory" in failure.hint


def test_a_lost_node_explains_those_that_lost_it() -> None:
    lost = end(None, node="node2", lost="no answer for 8 s", ended_at=108.0)
    failure = root_cause([end(0, lines=PEER, error_at=101.0), lost])
    assert failure is not None
    assert (failure.node, failure.rank, failure.exit_code) == ("node2", None, None), "nobody knows how it ended"
    assert failure.reason == "the node is lost: no answer for 8 s"
    assert failure.hint is not None and "switched on" in failure.hint
