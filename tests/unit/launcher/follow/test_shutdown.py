"""Ranks and agents that don't end when the launcher ends them."""

import signal
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
