"""A package started by its name from its own folder, as its author types it: `make -C path/to/ringmaster train`."""

import json
import os
from pathlib import Path

import pytest

from launcher.base.paths import ROOT
from tests.e2e.jobs import Job, Trainer
from tests.support.user_package import write_package


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_package(tmp_path_factory.mktemp("user") / "my pro ject ü $x")


@pytest.fixture(scope="module")
def ran(train: Trainer, project: Path) -> Job:
    """From a folder below the project's top, through a link to the checkout."""
    (project / "notes").mkdir()
    (project.parent / "ring master").symlink_to(ROOT)
    return train(
        called_from=project / "notes", checkout=project.parent / "ring master", MODULE="pkg.train", ARGS="--lr '0.1 $x'"
    )


def test_a_package_with_relative_imports_runs_on_two_nodes(ran: Job, project: Path) -> None:
    assert ran.exit_code == 0, ran.output
    for label in ("node1:0", "node2:1"):
        said = json.loads(ran.lines_of(label)[0])
        assert (said["argv"], said["value"], said["total"]) == (["--lr", "0.1 $x"], 42, 1.0)
        assert (said["cwd"], said["first"], said["settings"]) == (str(project), str(project), "mine")
        assert said["pythonpath"].split(os.pathsep)[:2] == [str(project), str(project / "src")]
        assert str(project / "src") in said["path"]


def test_the_plan_says_what_ran_and_a_resumed_job_repeats_it_from_anywhere(
    ran: Job, project: Path, train: Trainer, tmp_path: Path
) -> None:
    assert (ran.plan["script"], ran.plan["module"], ran.plan["code_root"]) == (None, "pkg.train", str(project))
    again = train(called_from=tmp_path, RESUME=ran.name)
    assert again.exit_code == 0, again.output
    said = json.loads(again.lines_of("node2:1")[0])
    assert (said["argv"], said["cwd"]) == (["--lr", "0.1 $x"], str(project))
    assert (again.folder / "checkpoints" / "0.bin").read_text() == "xx", "its checkpoints were there"


def test_a_dry_run_shows_it(train: Trainer, project: Path) -> None:
    job = train(called_from=project, MODULE="pkg.train", DRY_RUN=1, NODES=1)
    assert job.exit_code == 0, job.output
    assert "-u -m pkg.train'" in job.output and f"cd '{project}'" in job.output
    assert f"note: module pkg.train: src/pkg/train.py in {project}" in job.output


def test_a_console_script_of_the_environment(train: Trainer, project: Path) -> None:
    job = train(called_from=project, MODULE="pytest:pytest", ARGS="--version", NODES=1)
    assert job.exit_code == 0, job.output
    assert job.lines_of("node1:0") == [f"pytest {pytest.__version__}"]


def test_what_can_not_be_started_is_one_line_and_starts_nothing(train: Trainer, project: Path) -> None:
    for module, code, says in (
        ("pkg.trian", 2, "there is no module pkg.trian; pkg has train"),
        ("pkg", 2, "such as MODULE=pkg.train"),
        ("nowhere.train", 3, "there is no nowhere: name the folder that holds it with CODE="),
        ("nowhere:train", 3, "the package nowhere is not installed there"),
    ):
        job = train(called_from=project, MODULE=module)
        assert job.exit_code == code and says in job.output, job.output
        assert not job.folder.exists()


def test_relative_paths_are_the_callers(train: Trainer, project: Path) -> None:
    (project / "train.py").write_text("print('mine')\n")
    (project / "my data").mkdir()
    (project / "mine.yml").write_text((ROOT / "inventory" / "local.yml").read_text())
    variables = {"SCRIPT": "train.py", "DATA": "./my data", "INVENTORY": "mine.yml", "NODES": 1}
    job = train(called_from=project, DRY_RUN=1, **variables)
    assert job.exit_code == 0, job.output
    for shown in (f"cd '{project}'", f"{project}/train.py", f"DATA_DIR='{project}/my data'"):
        assert shown in job.output
    (project.parent / "x").mkdir()
    (project.parent / "x" / "train.py").touch()
    job = train(called_from=ROOT, DRY_RUN=1, NODES=1, SCRIPT=os.path.relpath(project.parent / "x" / "train.py", ROOT))
    assert job.exit_code == 0 and f"cd {project.parent}/x\n" in job.output, "two dots lead out of this checkout"
    for name in ("SCRIPT", "INVENTORY"):
        job = train(called_from=project, **{**variables, name: "inventory/local.yml"})
        there = f" in {project} (there is {ROOT}/inventory/local.yml: give this path if you mean it)"
        assert job.exit_code == 2 and there in job.output, job.output


def test_a_script_of_a_package_is_told_to_be_started_as_a_module(train: Trainer, project: Path) -> None:
    job = train(called_from=project, SCRIPT="src/pkg/train.py", NODES=1)
    assert job.exit_code == 1
    assert job.summary["failure"]["hint"] == (
        f"train.py is a part of a package: start it as MODULE=pkg.train CODE='{project}'"
    )
