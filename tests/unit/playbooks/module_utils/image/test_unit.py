"""A `docker` command as a unit: how it ended is found afterwards."""

from pathlib import Path

import pytest
from ansible.module_utils.ringmaster.image import unit
from ansible.module_utils.ringmaster.image.unit import DockerUnit

PULL = DockerUnit("pull")


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the unit runs, question by question."""
    states: list[bool] = []
    monkeypatch.setattr(PULL, "_said", str(tmp_path / "log"))
    monkeypatch.setattr(PULL, "_code", str(tmp_path / "code"))
    monkeypatch.setattr(PULL, "_running", lambda: states.pop(0))
    monkeypatch.setattr(unit, "_POLL_SECONDS", 0)
    return states


def test_its_end_is_waited_for(running: list[bool], tmp_path: Path) -> None:
    running[:] = [True, True]
    assert not PULL.wait(-1)
    (tmp_path / "code").write_text("0 image\n")
    assert PULL.wait(-1)


def test_how_it_ended_is_told_of_its_own_image_only(running: list[bool], tmp_path: Path) -> None:
    (tmp_path / "code").write_text("1 image\n")
    running[:] = [False] * 4
    assert [PULL.begun("image"), PULL.begun("other"), PULL.brings("image")] == [True, False, False]
    (tmp_path / "code").write_text("0 image\n")
    assert PULL.brings("image")


def test_why_it_failed_is_said(running: list[bool], tmp_path: Path) -> None:
    running[:] = [False]
    (tmp_path / "log").write_text("noise\nError response from daemon: no space left on device\n")
    (tmp_path / "code").write_text("1 image\n")
    with pytest.raises(ValueError, match=r"^no space left on device$"):
        PULL.wait(60)


def test_one_that_was_stopped_is_not_waited_for(running: list[bool], tmp_path: Path) -> None:
    running[:] = [True, False]
    (tmp_path / "code").write_text("")
    with pytest.raises(ValueError, match="stopped before its end"):
        PULL.wait(60)
