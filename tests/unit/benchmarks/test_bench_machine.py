"""A figure's origin: the commit it was measured at, with or without changes."""

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks import machine


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    return subprocess.run(["git", "-C", folder, *identity, *words], check=True, capture_output=True, text=True).stdout


def test_changes_are_told_except_those_of_pages(tmp_path: Path) -> None:
    git(tmp_path, "init")
    (tmp_path / "docs").mkdir()
    for name in ("docs/page.md", "code.py"):
        (tmp_path / name).write_text("one")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "one")
    commit = git(tmp_path, "rev-parse", "--short", "HEAD").strip()
    assert machine.commit(tmp_path) == commit
    (tmp_path / "docs/page.md").write_text("two")
    assert machine.commit(tmp_path) == commit
    (tmp_path / "new.py").write_text("")
    assert machine.commit(tmp_path) == f"{commit}+changes"


@pytest.mark.parametrize(
    ("start", "end", "told"),
    [
        ("a", "a", "a"), ("a", "a+changes", "a+changes"), ("a", "b", "a+changes"),
        ("a+changes", "a", "a+changes"), ("a+changes", "a+changes", "a+changes"),
    ],
)  # fmt: skip
def test_a_tree_that_was_changed_at_either_end_is_told(start: str, end: str, told: str) -> None:
    assert machine.between(start, end) == told


def test_a_copy_without_history_has_no_commit(tmp_path: Path) -> None:
    assert machine.commit(tmp_path) == "unknown"


def test_a_machine_is_the_same_after_its_trip_through_a_file() -> None:
    here = machine.look()
    assert machine.Machine.from_json(json.loads(json.dumps(here.to_json()))) == here
    assert here.cores >= 1
    assert here.torch[0].isdigit()
