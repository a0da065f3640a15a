"""Inotify instances for many nodes: when the limit is raised, refused, and put back, also by labs that overlap."""

import json
from pathlib import Path

import pytest

from lab.host import inotify
from launcher.base.errors import ExitCode, RingmasterError


@pytest.fixture
def limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the place of the kernel's, with the usual limit; nothing is in use."""
    file = tmp_path / "max_user_instances"
    file.write_text("128\n")
    (tmp_path / "proc").mkdir()
    monkeypatch.setattr(inotify, "LIMIT", file)
    monkeypatch.setattr(inotify, "FOLDER", tmp_path / "run")
    monkeypatch.setattr(inotify, "_PROCESSES", tmp_path / "proc")
    return file


@pytest.mark.parametrize(
    ("nodes", "limit", "in_use", "more"),
    [
        (10, 128, 0, None),
        (11, 128, 0, 1024),
        (3, 128, 100, 1024),
        (0, 128, 500, None),
        (24, 1024, 300, None),
        (32, 1024, 1000, 1384),
    ],
)
def test_how_many_are_wanted(nodes: int, limit: int, in_use: int, more: int | None) -> None:
    assert inotify.wanted(nodes, limit, in_use) == more


def test_a_small_lab_changes_nothing(limit: Path) -> None:
    inotify.provide("a-lab", 4, 0)
    assert limit.read_text() == "128\n"
    assert not inotify.FOLDER.exists()
    inotify.give_back("a-lab")
    assert limit.read_text() == "128\n"


def test_a_large_lab_raises_it_and_the_last_lab_puts_back_what_it_was(
    limit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inotify.provide("a-lab", 24, 0)
    assert limit.read_text() == "1024\n"
    assert "raised from 128 to 1024" in capsys.readouterr().err
    inotify.provide("a-lab", 0, 24)
    inotify.provide("b-lab", 9, 24)  # enough now, but not if the first one took it back
    inotify.give_back("a-lab")
    assert limit.read_text() == "1024\n"
    inotify.give_back("c-lab")
    assert limit.read_text() == "1024\n"
    inotify.give_back("b-lab")
    assert limit.read_text() == "128\n"
    inotify.give_back("b-lab")
    assert not inotify._record_file().exists()


def test_a_second_raise_keeps_what_it_was_at_first(limit: Path) -> None:
    inotify.provide("a-lab", 32, 0)
    inotify.provide("b-lab", 32, 80)
    assert limit.read_text() == f"{112 * 12}\n"
    for label in ("a-lab", "b-lab"):
        inotify.give_back(label)
    assert limit.read_text() == "128\n"


def test_what_somebody_else_set_meanwhile_stays(limit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inotify.provide("a-lab", 24, 0)
    limit.write_text("4096\n")
    inotify.give_back("a-lab")
    assert limit.read_text() == "4096\n"
    assert "is 4096 by somebody else's doing: it stays (before the lab: 128)" in capsys.readouterr().err
    assert not inotify._record_file().exists()


def test_who_may_not_raise_it_is_told_the_command(limit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inotify.os, "access", lambda *_: False)
    with pytest.raises(RingmasterError, match=r"24 more nodes need about 288 .* allows 128, and about 24 ") as told:
        inotify.provide("a-lab", 24, 2)
    assert "`sudo sysctl fs.inotify.max_user_instances=1024`" in str(told.value)
    assert told.value.exit_code == ExitCode.NOT_STARTED
    assert limit.read_text() == "128\n"
    assert not inotify.FOLDER.exists()


def test_instances_of_roots_processes_are_counted(tmp_path: Path, limit: Path) -> None:
    descriptors = tmp_path / "proc" / "17" / "fd"
    descriptors.mkdir(parents=True)
    for number, target in enumerate(("anon_inode:inotify", "/dev/null", "anon_inode:inotify", "socket:[3]")):
        (descriptors / str(number)).symlink_to(target)
    (tmp_path / "proc" / "18").mkdir()  # ended meanwhile
    assert inotify.count() == (2 if descriptors.stat().st_uid == 0 else 0)


def test_the_record_says_for_whom(limit: Path) -> None:
    inotify.provide("b-lab", 24, 0)
    inotify.provide("a-lab", 1, 24)
    assert json.loads(inotify._record_file().read_text()) == {
        "before": 128, "raised": 1024, "labs": ["a-lab", "b-lab"],
    }  # fmt: skip
