"""What a signal to the launcher does to the job, step by step."""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from launcher.base.errors import ExitCode, meaning
from launcher.follow import shutdown, signal_ladder
from launcher.job.plan import NodePlan
from tests.support.fake_runtime import FakeNode, FakeRuntime
from tests.support.following import PATIENT, STUBBORN, answers, follow, follow_with, plan_of, run, send
from tests.support.plans import facts, plan_for


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
def test_one_signal_is_handed_to_the_programs(tmp_path: Path, signum: signal.Signals, code: int) -> None:
    program = PATIENT.replace("signal.signal(2,", "signal.signal(15, lambda *_: sys.exit(0)); signal.signal(2,")
    outcome, screen, _ = run(tmp_path, plan_of(program, program), signum)
    assert (outcome.state, outcome.exit_code, outcome.failure) == ("stopped", code, None)
    assert meaning(outcome.exit_code) == f"stopped by {'Ctrl-C' if signum == signal.SIGINT else signum.name}"
    assert len(screen.notes) == 1 and "asked the script to stop" in screen.notes[0]


def test_a_hangup_that_was_ignored_stays_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        outcome, screen, _ = run(tmp_path, plan_of("import time\nprint('ready')\ntime.sleep(1)"), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (outcome.state, screen.notes) == ("succeeded", [])


def test_three_signals_end_a_program_that_ignores_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutdown, "_TERM_S", 60.0)  # so that the third signal ends them, not the patience
    outcome, screen, seconds = run(tmp_path, plan_of(STUBBORN, STUBBORN), *[signal.SIGINT] * 3)
    assert (outcome.state, outcome.exit_code) == ("stopped", ExitCode.INTERRUPTED)
    assert answers(screen) >= 3 and "killing" in screen.notes
    assert seconds < 30


class TestASurvivingRuntime:
    def test_a_closed_terminal_leaves_it_running(self, tmp_path: Path) -> None:
        runtime = FakeRuntime()
        outcome, screen = follow_with(tmp_path, runtime, send(signal.SIGHUP))
        assert (outcome.state, outcome.exit_code) == ("detached", ExitCode.TERMINATED)
        assert runtime.done == ["release"]
        assert [node.calls for node in runtime.nodes] == [[], []]
        assert screen.notes == []

    def test_ctrl_c_stops_it(self, tmp_path: Path) -> None:
        runtime = FakeRuntime()
        outcome, screen = follow_with(tmp_path, runtime, send(signal.SIGINT), script=False)
        assert (outcome.state, outcome.exit_code, outcome.failure) == ("stopped", ExitCode.INTERRUPTED, None)
        assert [node.calls[0] for node in runtime.nodes] == ["SIGINT", "SIGINT"]
        assert runtime.done == ["sweep"]
        assert "with a checkpoint" in screen.notes[0]

    @pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
    def test_whoever_only_follows_never_ends_it(self, tmp_path: Path, signum: int, code: int) -> None:
        runtime = FakeRuntime()
        outcome, _ = follow_with(tmp_path, runtime, send(signum), only_follows=True)
        assert (outcome.state, outcome.exit_code) == ("detached", code)
        assert runtime.done == ["release"]
        assert [node.calls for node in runtime.nodes] == [[], []]


class TestARuntimeThatEndsWithUs:
    def test_a_closed_terminal_stops_it(self, tmp_path: Path) -> None:
        runtime = FakeRuntime(survives=False)
        outcome, _ = follow_with(tmp_path, runtime, send(signal.SIGHUP))
        assert (outcome.state, outcome.exit_code) == ("stopped", ExitCode.TERMINATED)
        assert runtime.done == ["sweep"]
        assert [node.calls[0] for node in runtime.nodes] == ["SIGTERM", "SIGTERM"]


class TestStopRequestedBeforeWeFollowed:
    """`make stop`: the request is older than the following."""

    def test_the_ranks_are_asked_and_given_time(self, tmp_path: Path) -> None:
        runtime = FakeRuntime()
        outcome, screen = follow_with(tmp_path, runtime, received=(signal.SIGTERM,), script=False)
        assert (outcome.state, outcome.exit_code) == ("stopped", ExitCode.TERMINATED)
        assert [node.calls[0] for node in runtime.nodes] == ["SIGTERM", "SIGTERM"]
        assert "with a checkpoint" in screen.notes[0]

    def test_also_when_they_report_late(self, tmp_path: Path) -> None:
        runtime = FakeRuntime(obeys=False)
        heard: list[float] = []

        def start(nodes: Sequence[NodePlan], port: int) -> list[FakeNode]:
            runtime.nodes = [FakeNode(node, runtime) for node in nodes]
            return runtime.nodes

        def watch() -> list[str]:
            heard.append(time.monotonic())
            for node in runtime.nodes if len(heard) == 3 else ():  # the log comes over a slow connection
                runtime.obeys = True
                node.started()
            return []

        runtime.start, runtime.watch = start, watch  # type: ignore[method-assign]
        outcome, _ = follow(tmp_path, plan_for(facts(2)), runtime, received=(signal.SIGTERM,))
        assert outcome.state == "stopped"
        assert [node.calls[0] for node in runtime.nodes] == ["SIGTERM", "SIGTERM"], "not its agent, and not SIGKILL"

    def test_if_no_rank_has_reported_agents_and_ranks_are_asked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """If a job has printed very much, its log no longer has what its ranks reported at their start."""
        monkeypatch.setattr(signal_ladder, "_REPORT_S", 0.2)
        runtime = FakeRuntime()
        plan = plan_for(facts(2))
        runtime.start = lambda nodes, port: runtime.nodes  # type: ignore[method-assign, assignment, return-value]
        runtime.nodes = [FakeNode(node, runtime) for node in plan.nodes]
        outcome, screen = follow(tmp_path, plan, runtime, received=(signal.SIGTERM,))
        assert outcome.state == "stopped"
        assert "asked the script to stop" not in screen.notes[0] and "with a checkpoint" in screen.notes[0]
        assert [node.calls[0] for node in runtime.nodes] == ["terminate", "terminate"]
        assert [node.signals for node in runtime.nodes] == [[(signal.SIGTERM, None)]] * 2, "the runtime finds them"

    @pytest.mark.parametrize("heard", [False, True])
    def test_a_closed_terminal_changes_nothing(self, tmp_path: Path, heard: bool) -> None:
        """It is no second request, even if no rank has reported yet and so none was asked."""
        runtime = FakeRuntime(obeys=False)
        looks: list[int] = []

        def start(nodes: Sequence[NodePlan], port: int) -> list[FakeNode]:
            runtime.nodes = [FakeNode(node, runtime) for node in nodes]
            for node in runtime.nodes if heard else ():
                node.started()
            return runtime.nodes

        def watch() -> list[str]:
            looks.append(len(looks))
            if len(looks) == 2:
                os.kill(os.getpid(), signal.SIGHUP)
            if len(looks) == 4:
                runtime.obeys = True
                for node in runtime.nodes:
                    if heard:
                        node.exited(143, "SIGTERM")
                        node.end(0)
                    else:
                        node.started()
            return []

        runtime.start, runtime.watch = start, watch  # type: ignore[method-assign]
        outcome, _ = follow(tmp_path, plan_for(facts(2)), runtime, received=(signal.SIGTERM,))
        assert (outcome.state, outcome.exit_code) == ("stopped", ExitCode.TERMINATED)
        assert runtime.done == ["sweep"], "nothing is left to itself"
        assert [node.calls for node in runtime.nodes] == [["SIGTERM", "kill"]] * 2, "asked once, and killed at the end"

    @pytest.mark.parametrize("wait_s", [0.2, 20.0])
    def test_a_rank_that_starts_late_is_asked_and_no_other_twice(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_s: float
    ) -> None:
        """Late: after the others were asked, or before."""
        monkeypatch.setattr(signal_ladder, "_REPORT_S", wait_s)
        runtime = FakeRuntime(obeys=False)
        looks: list[int] = []

        def start(nodes: Sequence[NodePlan], port: int) -> list[FakeNode]:
            runtime.nodes = [FakeNode(node, runtime) for node in nodes]
            runtime.nodes[0].started()
            return runtime.nodes

        def watch() -> list[str]:
            looks.append(len(looks))
            if len(looks) == 2:
                runtime.nodes[1].started()
            if len(looks) == 4:
                for node in runtime.nodes:
                    node.exited(143, "SIGTERM")
                    node.end(0)
            return []

        runtime.start, runtime.watch = start, watch  # type: ignore[method-assign]
        follow(tmp_path, plan_for(facts(2)), runtime, received=(signal.SIGTERM,))
        assert [node.calls for node in runtime.nodes] == [["SIGTERM", "kill"]] * 2


def test_before_anything_has_started_ctrl_c_ends_the_agents(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    plan = plan_for(facts(2))
    runtime.start = lambda nodes, port: runtime.nodes  # type: ignore[method-assign, assignment, return-value]
    runtime.nodes = [FakeNode(node, runtime) for node in plan.nodes]
    runtime.watched = send(signal.SIGINT)
    outcome, screen = follow(tmp_path, plan, runtime)
    assert (outcome.state, outcome.exit_code) == ("stopped", ExitCode.INTERRUPTED)
    assert screen.notes[0] == "stopping: nothing had started yet"
    assert [node.calls[0] for node in runtime.nodes] == ["terminate", "terminate"]
