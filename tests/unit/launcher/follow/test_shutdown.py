"""Ranks and agents that don't end when the launcher ends them."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.base.errors import ExitCode
from launcher.follow import shutdown
from tests.support.fake_runtime import FakeNode, FakeRuntime
from tests.support.following import follow_with, send


class TestOutOfReach:
    """Nodes that hear nothing, and are not seen to end."""

    @pytest.fixture
    def deaf(self, monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
        monkeypatch.setattr(shutdown, "_GIVE_UP_S", 0.2)
        monkeypatch.setattr(shutdown, "_TERM_S", 0.1)
        monkeypatch.setattr(FakeNode, "kill", lambda node: node.calls.append("kill"))
        return FakeRuntime(obeys=False)

    def test_a_user_who_has_killed_everything_is_not_kept_waiting(self, tmp_path: Path, deaf: FakeRuntime) -> None:
        outcome, screen = follow_with(tmp_path, deaf, send(*[signal.SIGINT] * 3))
        assert (outcome.state, outcome.exit_code) == ("stopped", ExitCode.INTERRUPTED)
        assert screen.notes[-1] == "node1, node2: not seen to end; make stop NAME=job tries again"
        assert deaf.done == ["sweep"]

    def test_nor_is_a_user_whose_job_has_failed(self, tmp_path: Path, deaf: FakeRuntime) -> None:
        def fail() -> None:
            deaf.nodes[1].exited(1)
            deaf.nodes[1].end(1)

        outcome, screen = follow_with(tmp_path, deaf, fail)
        assert (outcome.state, outcome.exit_code) == ("failed", ExitCode.FAILED)
        assert screen.notes[-1] == "node1: not seen to end; make stop NAME=job tries again"


class TestAfterAFailure:
    """The others get SIGTERM. Who catches it may be about to save something."""

    @pytest.fixture
    def runtime(self, monkeypatch: pytest.MonkeyPatch) -> FakeRuntime:
        monkeypatch.setattr(shutdown, "_TERM_S", 0.1)
        return FakeRuntime(obeys=False)

    def fail(self, runtime: FakeRuntime, *, catches: bool) -> Callable[[], None]:
        def fail() -> None:
            runtime.nodes[1].exited(1)
            runtime.nodes[1].end(1)
            runtime.nodes[0].told(at=1.0, catches=catches)

        return fail

    def test_a_program_that_catches_sigterm_has_time_and_that_is_said(
        self, tmp_path: Path, runtime: FakeRuntime
    ) -> None:
        def saved() -> None:
            if any("waiting up to" in note for note in shown):
                runtime.nodes[0].exited(0)
                runtime.nodes[0].end(0)

        shown: list[str] = []
        outcome, screen = follow_with(tmp_path, runtime, self.fail(runtime, catches=True), noted=shown, each=saved)
        assert "waiting up to 30 s for node1:0, which catches SIGTERM" in screen.notes
        assert runtime.nodes[0].code == 0, "it ended by itself"
        assert (outcome.state, outcome.failure and outcome.failure.node) == ("failed", "node2")

    def test_not_for_ever(self, tmp_path: Path, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shutdown, "_CATCHING_S", 0.5)
        _, screen = follow_with(tmp_path, runtime, self.fail(runtime, catches=True))
        assert any("waiting up to" in note for note in screen.notes)
        assert runtime.nodes[0].code == -signal.SIGKILL

    @pytest.mark.parametrize(("catches", "script"), [(False, True), (True, False)])
    def test_others_have_none(self, tmp_path: Path, runtime: FakeRuntime, catches: bool, script: bool) -> None:
        """Nor has the bundled trainer: no checkpoint can be made without the rank that failed."""
        _, screen = follow_with(tmp_path, runtime, self.fail(runtime, catches=catches), script=script)
        assert not any("waiting up to" in note for note in screen.notes)
        assert runtime.nodes[0].code == -signal.SIGKILL

    def test_ctrl_c_ends_the_wait(self, tmp_path: Path, runtime: FakeRuntime) -> None:
        def interrupt() -> None:
            if any("waiting up to" in note for note in shown) and "killing" not in shown:
                os.kill(os.getpid(), signal.SIGINT)

        shown: list[str] = []
        outcome, screen = follow_with(tmp_path, runtime, self.fail(runtime, catches=True), noted=shown, each=interrupt)
        assert "killing" in screen.notes
        assert runtime.nodes[0].code == -signal.SIGKILL
        assert outcome.state == "failed", "that came first"
