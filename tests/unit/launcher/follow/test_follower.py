"""A job from its start to its end.

With real processes, where each agent is only a rank's parent, which needs no torch and starts in 20 ms; and with a fake
runtime that outlives the follower.
"""

import os
import shutil
import signal
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.base.errors import ExitCode
from launcher.follow.runtime import NotStartedError
from launcher.job.plan import NodePlan
from tests.support.fake_runtime import FakeNode, FakeRuntime
from tests.support.following import FOREVER, STUBBORN, follow, follow_with, plan_of, run, send
from tests.support.plans import cluster_plan, facts, plan_for


def test_all_well(tmp_path: Path) -> None:
    outcome, screen, _ = run(tmp_path, plan_of("print('one')", "print('two')"))
    assert (outcome.state, outcome.exit_code, outcome.failure) == ("succeeded", 0, None)
    assert sorted(screen.lines) == [("node1", 0, b"one"), ("node2", 1, b"two")]
    assert (tmp_path / "job/logs/node2.log").read_text() == "[1] two\n"
    assert screen.notes == []


def test_the_first_failure_stops_all_ranks_even_one_that_ignores_it(tmp_path: Path) -> None:
    outcome, _, seconds = run(tmp_path, plan_of(STUBBORN, "raise ValueError('boom')"))
    assert (outcome.state, outcome.exit_code) == ("failed", ExitCode.FAILED)
    assert outcome.failure is not None
    assert (outcome.failure.node, outcome.failure.rank, outcome.failure.reason) == ("node2", 1, "ValueError: boom")
    assert seconds < 20, "2.6 s by design; the rest is a busy machine"


def test_the_hint_for_a_missing_module_fits_where_the_job_runs(tmp_path: Path) -> None:
    program = plan_of("import no_such_module")
    container = cluster_plan(1).nodes[0].container
    on_nodes = replace(program, nodes=tuple(replace(node, container=container) for node in program.nodes))
    for name, plan, words in (
        ("here", program, "pip install <its name>"),
        ("there", on_nodes, "make image REQUIREMENTS"),
    ):
        (tmp_path / name).mkdir()
        outcome, _, _ = run(tmp_path / name, plan)
        assert outcome.failure is not None and words in (outcome.failure.hint or "")


def test_an_agent_that_is_killed_is_a_lost_node(tmp_path: Path) -> None:
    suicide = "import os, time\ntime.sleep(0.3)\nos.kill(os.getppid(), 9)\n" + FOREVER
    outcome, _, _ = run(tmp_path, plan_of(FOREVER, suicide))
    assert outcome.exit_code == ExitCode.CLUSTER
    assert outcome.failure is not None
    assert (outcome.failure.node, outcome.failure.rank, outcome.failure.signal) == ("node2", None, "SIGKILL")


def test_a_node_that_cannot_start_leaves_none_running(tmp_path: Path) -> None:
    plan = plan_of(FOREVER, FOREVER)
    plan = replace(plan, nodes=(plan.nodes[0], replace(plan.nodes[1], argv=("/no/such/torchrun",))))
    outcome, _, seconds = run(tmp_path, plan)
    assert (outcome.state, outcome.exit_code) == ("failed", ExitCode.NOT_STARTED)
    assert outcome.failure is not None and outcome.failure.node == "node2"
    assert seconds < 10


def test_the_last_process_is_found_by_its_label(tmp_path: Path) -> None:
    leaves = "import subprocess\np = subprocess.Popen(['sleep', '600'], start_new_session=True)\nprint(p.pid)"
    _, screen, _ = run(tmp_path, plan_of(leaves))
    assert screen.notes == ["1 process(es) that the job had left behind were ended"]
    status = Path(f"/proc/{int(screen.lines[0][2])}/status")
    assert not status.exists() or "State:\tZ" in status.read_text(), "gone, or a zombie until its parent looks"


def test_a_mistake_of_ours_leaves_a_job_running_that_survives_us(tmp_path: Path) -> None:
    def mistake() -> None:
        raise AssertionError("ours")

    runtime = FakeRuntime()
    with pytest.raises(AssertionError, match="ours"):
        follow_with(tmp_path, runtime, mistake)
    assert runtime.done == ["release"]
    assert [node.calls for node in runtime.nodes] == [[], []]


def test_a_mistake_of_ours_ends_a_job_that_does_not(tmp_path: Path) -> None:
    def mistake() -> None:
        raise AssertionError("ours")

    runtime = FakeRuntime(survives=False)
    with pytest.raises(AssertionError, match="ours"):
        follow_with(tmp_path, runtime, mistake)
    assert runtime.done == ["sweep"]
    assert ["kill" in node.calls for node in runtime.nodes] == [True, True]


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_fails_to_start_does_not_make_it_a_job_that_ran(tmp_path: Path, signum: int) -> None:
    runtime = FakeRuntime()

    def start(nodes: Sequence[NodePlan], port: int) -> list[FakeNode]:
        os.kill(os.getpid(), signum)
        raise NotStartedError("node2", "job other has it")

    runtime.start = start  # type: ignore[method-assign]
    outcome, _ = follow_with(tmp_path, runtime)
    assert (outcome.state, outcome.exit_code, outcome.started) == ("failed", ExitCode.NOT_STARTED, False)
    assert outcome.failure is not None and outcome.failure.node == "node2"


def test_others_learn_that_the_user_stops_the_job(tmp_path: Path) -> None:
    asked = threading.Event()
    outcome, _ = follow_with(tmp_path, FakeRuntime(), send(signal.SIGINT), on_stop=asked.set)
    assert outcome.state == "stopped" and asked.wait(60)


def test_others_are_not_told_of_a_stop_that_came_after_a_failure(tmp_path: Path) -> None:
    runtime, asked = FakeRuntime(), threading.Event()
    looks: list[None] = []

    def watched() -> None:
        if not all(node.ranks for node in runtime.nodes):
            return
        looks.append(None)
        if len(looks) == 1:
            runtime.nodes[0].exited(1)
            runtime.nodes[0].end(1)
        if len(looks) == 2:
            send(signal.SIGINT)()

    runtime.watched = watched
    outcome, _ = follow(tmp_path, plan_for(facts(2)), runtime, on_stop=asked.set)
    assert outcome.state == "failed" and not asked.is_set()


def test_a_log_that_can_not_be_opened_is_noted_and_the_job_goes_on(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    opened = runtime.start

    def start(nodes: Sequence[NodePlan], port: int) -> list[FakeNode]:
        shutil.rmtree(tmp_path / "job/logs")
        return opened(nodes, port)

    def end() -> None:
        for node in runtime.nodes:
            node.say("words")
            node.exited(0)
            node.end(0)

    runtime.start = start  # type: ignore[method-assign]
    outcome, screen = follow_with(tmp_path, runtime, end)
    assert outcome.state == "succeeded"
    assert sorted(screen.lines) == [("node1", 0, b"words"), ("node2", 1, b"words")]
    assert len(screen.notes) == 2
    assert all("is not complete: No such file or directory; the job goes on" in note for note in screen.notes)


def test_a_node_that_refuses_leaves_a_job_that_never_ran(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    runtime.refuses = NotStartedError("node2", "job other has it")
    outcome, _ = follow_with(tmp_path, runtime)
    assert (outcome.state, outcome.exit_code, outcome.started) == ("failed", ExitCode.NOT_STARTED, False)
    assert outcome.failure is not None
    assert (outcome.failure.node, outcome.failure.reason) == ("node2", "node2: job other has it")
