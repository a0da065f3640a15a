"""What a job has left to continue from, as its node finds it; the trainer itself writes what is found."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.on_node import checkpoints
from launcher.on_node.tree_store import Entry, manifest_of, parse
from tests.support.checkpoints import written
from trainer.checkpoint.files import last_resort

SOURCE = Path(checkpoints.__file__).read_text()


def names(found: checkpoints.Found) -> list[str]:
    return [row[0] for row in found.files]


def node(*words: object) -> tuple[int, list[dict[str, Any]]]:
    command = [sys.executable, "-IS", "-c", SOURCE, *map(str, words)]
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert done.stderr == b"", done.stderr.decode()
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_what_the_checkpoint_folder_refused_is_found_beside_it(tmp_path: Path) -> None:
    written(tmp_path / "checkpoints", 9, 200)
    elsewhere = last_resort(tmp_path)
    written(elsewhere, 300)
    found = checkpoints.newest(str(tmp_path / "checkpoints"))
    assert (names(found), found.step, found.folder) == (["step-00000300.json", "step-00000300.pt"], 300, str(elsewhere))
    (elsewhere / "step-00000300.pt").write_bytes(b"?")
    found = checkpoints.newest(str(tmp_path / "checkpoints"))
    assert (found.step, found.folder) == (200, str(tmp_path / "checkpoints")) and len(found.problems) == 1


def test_the_newest_of_the_trainers_with_its_manifest_and_nothing_else(tmp_path: Path) -> None:
    written(tmp_path, 9, 10, 200)
    (tmp_path / "step-00000300.pt").write_bytes(b"killed before the manifest was there")
    (tmp_path / "step-00000400.json.1700000000.old").write_text("{}")
    (tmp_path / "step-00000500.json.bad").write_text("{}")
    found = checkpoints.newest(str(tmp_path))
    assert names(found) == ["step-00000200.json", "step-00000200.pt"]
    assert (found.step, found.problems) == (200, [])
    assert int(found.changed) == int((tmp_path / "step-00000200.pt").stat().st_mtime)
    assert parse(manifest_of(Entry(*row) for row in found.files))


def empty(path: Path) -> None:
    path.with_suffix(".json").write_bytes(b"")


def endless(path: Path) -> None:
    path.with_suffix(".json").write_text('{"step": Infinity, "sha256": "", "bytes": 1}')


def deep(path: Path) -> None:
    path.with_suffix(".json").write_text("[" * 100_000)


def pipe(path: Path) -> None:
    path.with_suffix(".json").unlink()
    os.mkfifo(path.with_suffix(".json"))


def pipe_as_content(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def altered(path: Path) -> None:
    path.write_bytes(bytes(len(path.read_bytes())))


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (empty, "without a manifest that can be read"),
        (endless, "without a manifest that can be read"),
        (deep, "without a manifest that can be read"),
        pytest.param(pipe, "without a manifest that can be read", marks=pytest.mark.timeout(60)),
        (pipe_as_content, "0 bytes long instead of 11"),
        (shortened, "10 bytes long instead of 11"),
        (altered, "damaged (its SHA-256 is not the manifest's)"),
        (Path.unlink, "without its content, a .pt file"),
    ],
)
def test_a_damaged_one_is_passed_over_in_words(tmp_path: Path, damage: Callable[[Path], None], why: str) -> None:
    _, newest = written(tmp_path, 99, 100)
    damage(newest)
    found = checkpoints.newest(str(tmp_path))
    assert (found.step, len(found.problems)) == (99, 1)
    assert found.problems[0].startswith(f"checkpoint step-00000100 is {why}")


def test_what_can_not_be_read_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error", "/x/step.pt")

    written(tmp_path, 1, 2)
    monkeypatch.setattr(checkpoints, "_hashed", fails)
    with pytest.raises(OSError, match="Input/output error"):
        checkpoints.newest(str(tmp_path))


@pytest.mark.parametrize("look", [checkpoints.newest, checkpoints.everything])
def test_where_nothing_is_nothing_is_found(tmp_path: Path, look: Callable[[str], checkpoints.Found]) -> None:
    assert look(str(tmp_path)).files == [] == look(str(tmp_path / "nowhere")).files


def test_all_of_a_scripts_files_but_half_fetched_and_retired_ones(tmp_path: Path) -> None:
    for name in (
        "last/.metadata",
        "last/__0_0.distcp",
        "best.old",
        "a.tmp",
        ".fetching-1",
        "step-1.pt.bad",
        "step-1.pt.1.old",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "none").mkdir()
    (tmp_path / "newest").symlink_to("last")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "out").symlink_to("/job/run/checkpoints/last")
    (tmp_path / "up").symlink_to("last/../../x")
    os.utime(tmp_path / "a.tmp", (5e9, 5e9))
    found = checkpoints.everything(str(tmp_path))
    assert names(found) == ["a.tmp", "best.old", "gone", "last/.metadata", "last/__0_0.distcp", "newest", "none"]
    assert (found.step, found.changed) == (None, 5e9)
    assert [each.partition(" ")[0] for each in found.problems] == ["out", "up"]
    assert parse(manifest_of(Entry(*row) for row in found.files))


def test_names_that_are_not_utf8_are_kept(tmp_path: Path) -> None:
    name = b"caf\xe9"
    (tmp_path / os.fsdecode(name)).write_text("x")
    ((path, *_),) = checkpoints.everything(str(tmp_path)).files
    assert path.encode("utf-8", "surrogateescape") == name


def test_as_a_program_it_tells_the_job_too(tmp_path: Path) -> None:
    written(tmp_path / "run/checkpoints", 7)
    (tmp_path / "plan.json").write_text('{"name": "job"}')
    (tmp_path / "node").write_text("node1")
    code, (answer,) = node("newest", tmp_path)
    assert (code, answer["there"], answer["plan"], answer["node"], answer["step"]) == (
        0,
        True,
        {"name": "job"},
        "node1",
        7,
    )
    code, (answer,) = node("all", tmp_path)
    assert [row[0] for row in answer["files"]] == ["step-00000007.json", "step-00000007.pt"]


def test_a_job_that_is_not_there_is_said(tmp_path: Path) -> None:
    assert node("newest", tmp_path / "none") == (0, [{"there": False, "plan": None, "node": ""}])


def test_what_fails_is_said_with_the_place(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/checkpoints").touch()
    code, (answer,) = node("newest", tmp_path)
    assert (code, answer["errno"], answer["path"]) == (1, "ENOTDIR", str(tmp_path / "run/checkpoints"))


def test_progress_is_said_while_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "run/checkpoints", 1, content=bytes(3_000_000))
    clock, said = iter(range(1000)), []
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(checkpoints, "_say", said.append)
    checkpoints.describe("newest", str(tmp_path))
    assert [each["done"] for each in said] == [1 << 20, 2 << 20, 3_000_000]
    said.clear()
    checkpoints.describe("all", str(tmp_path))
    assert said[-1]["done"] == said[-1]["of"] > 3_000_000


def test_it_fits_into_one_word_of_a_command_line() -> None:
    assert SOURCE.isascii() and len(SOURCE) < 100_000
