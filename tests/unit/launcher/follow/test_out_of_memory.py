"""A rank that was killed because memory had run out."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from launcher.base.errors import ExitCode
from launcher.follow import out_of_memory, shutdown
from tests.support.fake_runtime import FakeRuntime
from tests.support.following import follow_with


def test_memory_that_ran_out_is_named(tmp_path: Path) -> None:
    runtime = FakeRuntime()

    def kill() -> None:
        runtime.nodes[1].memory = "node2 (limit 512 MiB)"
        runtime.nodes[1].exited(137, "SIGKILL")
        runtime.nodes[1].end(1)

    outcome, _ = follow_with(tmp_path, runtime, kill)
    assert outcome.exit_code == ExitCode.FAILED
    assert outcome.failure is not None
    assert (outcome.failure.rank, outcome.failure.reason) == (1, "out of memory on node2 (limit 512 MiB)")


def test_memory_that_ran_out_is_the_programs_doing_even_if_the_kernel_chose_the_agent(tmp_path: Path) -> None:
    runtime = FakeRuntime()

    def kill() -> None:
        runtime.nodes[1].memory = "node2 (limit 512 MiB)"
        runtime.nodes[1].end(-signal.SIGKILL)

    outcome, _ = follow_with(tmp_path, runtime, kill)
    assert outcome.exit_code == ExitCode.FAILED
    assert outcome.failure is not None
    assert (outcome.failure.rank, outcome.failure.reason) == (None, "out of memory on node2 (limit 512 MiB)")


def test_the_other_nodes_are_stopped_before_a_slow_one_has_said_why(tmp_path: Path) -> None:
    """A node that has run out of memory may take minutes to answer."""
    runtime = FakeRuntime()
    stopped = threading.Event()

    def kill() -> None:
        one, other = runtime.nodes
        terminate = other.terminate

        def noted() -> None:
            terminate()
            stopped.set()

        def out_of_memory() -> str | None:
            return "node1" if stopped.wait(20) else "nobody was stopped meanwhile"

        one.out_of_memory, other.terminate = out_of_memory, noted  # type: ignore[method-assign]
        one.exited(137, "SIGKILL")
        one.end(1)

    outcome, _ = follow_with(tmp_path, runtime, kill)
    assert outcome.failure is not None
    assert (outcome.failure.node, outcome.failure.reason) == ("node1", "out of memory on node1")


def await_sweep(runtime: FakeRuntime) -> None:
    """Wait until everything has stopped."""
    deadline = time.monotonic() + 20
    while "sweep" not in runtime.done and time.monotonic() < deadline:
        time.sleep(0.01)


def test_an_answer_is_waited_for_once_everything_has_stopped(tmp_path: Path) -> None:
    runtime = FakeRuntime()

    def out_of_memory() -> str:
        await_sweep(runtime)
        time.sleep(1.5)
        return "node1 (limit 1 MiB)"

    def kill() -> None:
        runtime.nodes[0].out_of_memory = out_of_memory  # type: ignore[method-assign]
        runtime.nodes[0].exited(137, "SIGKILL")
        runtime.nodes[0].end(1)

    outcome, _ = follow_with(tmp_path, runtime, kill)
    assert outcome.failure is not None and outcome.failure.reason == "out of memory on node1 (limit 1 MiB)"


@pytest.mark.parametrize("only_follows", [False, True])
def test_ctrl_c_during_that_wait_changes_nothing_about_the_end(tmp_path: Path, only_follows: bool) -> None:
    runtime = FakeRuntime()
    over = threading.Event()

    def answer_late() -> None:
        await_sweep(runtime)
        os.kill(os.getpid(), signal.SIGINT)
        over.wait(60)

    def kill() -> None:
        for node in runtime.nodes:
            node.out_of_memory = answer_late  # type: ignore[method-assign]
        runtime.nodes[0].exited(137, "SIGKILL")
        runtime.nodes[0].end(1)

    began = time.monotonic()
    outcome, _ = follow_with(tmp_path, runtime, kill, only_follows=only_follows)
    over.set()
    assert time.monotonic() - began < out_of_memory._ANSWER_S
    assert (outcome.state, outcome.exit_code) == ("failed", ExitCode.FAILED)
    assert outcome.failure is not None and outcome.failure.reason == "killed by SIGKILL"


def test_what_we_killed_ourselves_did_not_run_out_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutdown, "_TERM_S", 0.1)
    runtime = FakeRuntime(obeys=False)

    def fail() -> None:
        for node in runtime.nodes:
            node.memory = "node1 (limit 1 MiB)"
        runtime.nodes[1].say("Traceback (most recent call last):")
        runtime.nodes[1].say("ValueError: boom")
        runtime.nodes[1].exited(1)
        runtime.nodes[1].end(1)

    outcome, _ = follow_with(tmp_path, runtime, fail)
    assert outcome.failure is not None and outcome.failure.reason == "ValueError: boom"
    assert "kill" in runtime.nodes[0].calls
