"""RUN_DIR of a script on this machine: any name in it is the script's, and nothing in it is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.job.folder import JobFolder, create
from launcher.local import run_folder
from launcher.local.run_folder import RunFolder
from tests.support.cluster.live_engine import until
from tests.support.plans import facts, plan_for

OURS = ("plan.json", "summary.json", "report.html", "run", "work", "replaced.json")


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    folder = JobFolder(path=tmp_path / "job")
    create(folder, plan_for(facts(1)))
    run_folder.make(folder)
    return folder


@pytest.fixture
def run(folder: JobFolder) -> Iterator[RunFolder]:
    run = RunFolder(folder, "node1")
    yield run
    run._ended.set()


def test_a_script_finds_only_its_checkpoints(folder: JobFolder, run: RunFolder) -> None:
    assert [path.name for path in folder.own.iterdir()] == ["checkpoints"]
    (folder.own / "checkpoints/last.pt").write_text("x")
    assert run.bring_home() == [] and (folder.checkpoints / "last.pt").read_text() == "x"
    assert not folder.own.exists() and not folder.checkpoints.is_symlink()


def test_what_has_a_name_of_ours_is_put_aside_as_on_a_cluster(folder: JobFolder, run: RunFolder) -> None:
    ours = folder.plan.read_text()
    for name in OURS:
        (folder.own / name).write_text("theirs")
    (folder.own / "logs").mkdir()
    (folder.own / "logs/node1.log").write_text("theirs")
    (folder.logs / "node1.log").write_text("ours")
    assert run.bring_home() == []
    assert {name: (folder.of_node("node1") / name).read_text() for name in OURS} == dict.fromkeys(OURS, "theirs")
    assert (folder.of_node("node1") / "logs/node1.log").read_text() == "theirs"
    assert (folder.plan.read_text(), (folder.logs / "node1.log").read_text()) == (ours, "ours")
    assert not folder.summary.exists() and not folder.own.exists()


def test_the_rest_comes_to_the_jobs_folder_and_shows_there_at_once(folder: JobFolder, run: RunFolder) -> None:
    (folder.own / "out").mkdir()
    (folder.own / "out/model.pt").write_text("m")
    (folder.own / "plan.json").write_text("theirs")
    until(lambda: (folder.path / "out/model.pt").exists())
    assert "theirs" not in folder.plan.read_text()
    assert run.bring_home() == []
    assert (folder.path / "out/model.pt").read_text() == "m" and not (folder.path / "out").is_symlink()


def test_metrics_are_followed_from_their_first_line(folder: JobFolder, run: RunFolder) -> None:
    assert not folder.metrics.exists()
    (folder.own / "metrics.jsonl").write_text("{}\n")
    assert folder.metrics.read_text() == "{}\n"
    assert run.bring_home() == [] and folder.metrics.read_text() == "{}\n" and not folder.metrics.is_symlink()


def test_where_no_metrics_came_none_are_there(folder: JobFolder, run: RunFolder) -> None:
    run.bring_home()
    assert not folder.metrics.exists() and not folder.metrics.is_symlink()


def test_checkpoints_that_the_script_has_replaced_are_not_lost(folder: JobFolder, run: RunFolder) -> None:
    (folder.own / "checkpoints").unlink()
    (folder.own / "checkpoints").mkdir()
    (folder.own / "checkpoints/x").write_text("x")
    assert run.bring_home() == []
    assert (folder.of_node("node1") / "checkpoints/x").read_text() == "x" and folder.checkpoints.is_dir()


def test_links_still_lead_to_what_they_led_to(folder: JobFolder, run: RunFolder) -> None:
    (folder.own / "step-1.pt").write_text("1")
    (folder.own / "by name").symlink_to("step-1.pt")
    (folder.own / "by path").symlink_to(folder.own / "step-1.pt")
    (folder.own / "nowhere").symlink_to("gone")
    assert run.bring_home() == []
    assert [(folder.path / name).read_text() for name in ("by name", "by path")] == ["1", "1"]
    assert (folder.path / "nowhere").is_symlink()


def test_so_do_links_in_folders_and_links_to_what_is_put_aside(folder: JobFolder, run: RunFolder) -> None:
    (folder.own / "out").mkdir()
    (folder.own / "out/step-1.pt").write_text("1")
    (folder.own / "checkpoints/best.pt").write_text("best")
    (folder.own / "summary.json").write_text("theirs")
    (folder.own / "out/last.pt").symlink_to(folder.own / "out/step-1.pt")
    (folder.own / "out/near.pt").symlink_to("step-1.pt")
    (folder.own / "out/best.pt").symlink_to(folder.own / "checkpoints/best.pt")
    (folder.own / "out/top").symlink_to(folder.own)
    (folder.own / "end").symlink_to("summary.json")
    (folder.own / "logs").symlink_to("out")
    folder.summary.write_text("ours")
    assert run.bring_home() == []
    home, aside = folder.path, folder.of_node("node1")
    assert [(home / "out" / name).read_text() for name in ("last.pt", "near.pt", "best.pt")] == ["1", "1", "best"]
    assert (home / "out/near.pt").readlink() == Path("step-1.pt")
    assert ((home / "end").read_text(), (home / "out/top").resolve()) == ("theirs", home.resolve())
    assert (aside / "logs/step-1.pt").read_text() == "1"


def test_a_job_of_the_bundled_trainer_has_no_such_folder(tmp_path: Path) -> None:
    folder = JobFolder(path=tmp_path / "job")
    create(folder, plan_for(facts(1)))
    assert RunFolder(folder, "node1").bring_home() == []
    assert sorted(path.name for path in folder.path.iterdir()) == ["checkpoints", "logs", "plan.json"]
