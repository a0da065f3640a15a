"""A pull as a unit: how it ended is found afterwards."""

from pathlib import Path

import pytest
from ansible.module_utils.ringmaster.image import pull


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the unit runs, question by question."""
    states: list[bool] = []
    monkeypatch.setattr(pull, "_SAID", str(tmp_path / "log"))
    monkeypatch.setattr(pull, "_CODE", str(tmp_path / "code"))
    monkeypatch.setattr(pull, "_running", lambda: states.pop(0))
    monkeypatch.setattr(pull, "_POLL_SECONDS", 0)
    return states


def test_its_end_is_waited_for(running: list[bool], tmp_path: Path) -> None:
    running[:] = [True, True]
    assert not pull.wait(-1)
    (tmp_path / "code").write_text("0\n")
    assert pull.wait(-1)


def test_why_it_failed_is_said(running: list[bool], tmp_path: Path) -> None:
    running[:] = [False]
    (tmp_path / "log").write_text("noise\nError response from daemon: no space left on device\n")
    (tmp_path / "code").write_text("1\n")
    with pytest.raises(ValueError, match=r"^no space left on device$"):
        pull.wait(60)


def test_one_that_was_stopped_is_not_waited_for(running: list[bool], tmp_path: Path) -> None:
    running[:] = [True, False]
    (tmp_path / "code").write_text("")
    with pytest.raises(ValueError, match="stopped before its end"):
        pull.wait(60)
