"""Which jobs' folders may be removed, and that nothing else ever is."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from launcher.base.paths import ROOT
from launcher.job import folder as job
from launcher.job.folder import JobFolder
from launcher.job.held import held, holder
from launcher.job.old_runs import find_runs, freed_bytes, removable, remove, remove_leftovers
from tests.support.plans import cluster_plan
from tests.support.runs import made

HOLDS = """
import sys, time
from pathlib import Path
from launcher.job.folder import JobFolder
from launcher.job.held import held
with held(JobFolder(path=Path(sys.argv[1]))):
    print("held", flush=True)
    time.sleep(600)
"""


@contextmanager
def followed(folder: JobFolder) -> Iterator["subprocess.Popen[str]"]:
    """Have another process hold a job's folder."""
    words = [sys.executable, "-c", HOLDS, str(folder.path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout and process.stdout.readline() == "held\n"
        yield process
        process.kill()


def going(runs: Path, keep: int) -> list[str]:
    return [run.folder.name for run in removable(find_runs(runs), keep)]


def test_the_newest_stay_and_the_one_that_latest_means(tmp_path: Path) -> None:
    for name, age in (("a", 30.0), ("old but latest", 40.0), ("c", 20.0), ("d", 10.0)):
        made(tmp_path, name, age)
    job._point_latest(JobFolder(path=tmp_path / "old but latest"))
    assert [run.folder.name for run in find_runs(tmp_path)] == ["d", "c", "a", "old but latest"]
    assert going(tmp_path, 2) == ["a"]
    assert going(tmp_path, 0) == ["d", "c", "a"]
    assert going(tmp_path, 20) == []
    assert find_runs(tmp_path / "none") == []


def test_only_jobs_folders_count(tmp_path: Path) -> None:
    elsewhere = made(tmp_path / "elsewhere", "job", 5.0)
    runs = tmp_path / "runs"
    made(runs, "job", 5.0)
    (runs / "latest").unlink()
    (runs / "a link").symlink_to(elsewhere.path)
    (runs / "notes").mkdir()
    (runs / "file").touch()
    made(runs, "renamed", 5.0).path.rename(runs / "mine now")
    made(runs, "linked plan", 5.0).plan.unlink()
    (runs / "linked plan" / "plan.json").symlink_to(elsewhere.plan)
    for name, content in (
        ("broken", "{"),
        ("another", '{"name": "another"}'),
        ("none", '{"name": "none", "nodes": []}'),
    ):
        (runs / name).mkdir()
        (runs / name / "plan.json").write_text(content)
    assert [run.folder.name for run in find_runs(runs)] == ["job"]


def test_what_runs_stays_until_its_launcher_has_gone(tmp_path: Path) -> None:
    folder = made(tmp_path, "runs", 10.0)
    made(tmp_path, "newer", 5.0)
    with followed(folder) as process:
        found = holder(folder)
        assert found and found.is_here and found.pid == process.pid
        assert going(tmp_path, 0) == []
        (run,) = (run for run in find_runs(tmp_path) if run.folder == folder)
        assert not remove(run) and folder.path.exists(), "somebody has come since we asked"
    assert holder(folder) is None, "however it ended"
    assert going(tmp_path, 0) == ["runs"]


def test_a_clusters_job_stays_until_its_end_is_known(tmp_path: Path) -> None:
    folder = made(tmp_path, "far", 10.0, cluster_plan(name="far"))
    made(tmp_path, "newer", 5.0)
    assert going(tmp_path, 0) == []
    folder.summary.write_text("{}")
    assert going(tmp_path, 0) == ["far"]


def test_removing_follows_no_link_and_leaves_no_half_job(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "data").touch()
    runs = tmp_path / "runs"
    folder = made(runs, "job", 10.0)
    (folder.path / "data").symlink_to(elsewhere)
    (runs / ".removing-job").mkdir()
    (runs / ".removing-other").mkdir()
    (runs / ".removing-link").symlink_to(elsewhere)
    assert remove(find_runs(runs)[0])
    remove_leftovers(runs)
    assert sorted(path.name for path in runs.iterdir()) == [".removing-link", "latest"]
    assert (elsewhere / "data").exists()


def test_what_is_linked_elsewhere_frees_nothing(tmp_path: Path) -> None:
    one, two = made(tmp_path, "one", 20.0), made(tmp_path, "two", 10.0)
    whole = freed_bytes(find_runs(tmp_path))
    (two.checkpoints / "linked.pt").hardlink_to(one.checkpoints / "step.pt")
    assert freed_bytes(find_runs(tmp_path)) == whole, "one file, though two names"
    (older,) = (run for run in find_runs(tmp_path) if run.folder == one)
    assert freed_bytes([older]) < 100_000 < whole


def test_a_folder_is_held_where_the_disk_refuses_and_errors_pass(tmp_path: Path) -> None:
    with held(JobFolder(path=tmp_path / "none")):
        pass
    with pytest.raises(OSError, match="mine"), held(JobFolder(path=tmp_path)):
        raise OSError("mine")
    (tmp_path / ".launcher").write_bytes(b"\xff no number")
    assert holder(JobFolder(path=tmp_path)) is None
