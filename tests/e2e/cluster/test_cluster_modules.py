"""A package started by its name from outside the checkout, on a cluster: its code travels, and is found there."""

import json
from pathlib import Path

import pytest

from tests.e2e.cluster.cluster import NODES, Cluster
from tests.e2e.jobs import Job
from tests.support.user_package import write_package

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_package(tmp_path_factory.mktemp("user") / "my pro ject ü")


@pytest.fixture(scope="module")
def ran(cluster: Cluster, project: Path) -> Job:
    return cluster.train(called_from=project, MODULE="pkg.train", ARGS="--lr 0.1", GPUS=0)


def test_it_runs_on_both_nodes_in_a_copy_of_its_code(ran: Job) -> None:
    assert ran.exit_code == 0, ran.output
    for label in ("node1:0", "node2:1"):
        said = json.loads(ran.lines_of(label)[0])
        assert (said["argv"], said["value"], said["total"]) == (["--lr", "0.1"], 42, 1.0)
        assert (said["cwd"], said["first"], said["settings"]) == ("/job/code", "/job/code", "mine")
        assert said["pythonpath"].split(":")[:2] == ["/job/code", "/job/code/src"]


def test_a_resumed_job_repeats_it_from_anywhere(ran: Job, cluster: Cluster, project: Path, tmp_path: Path) -> None:
    assert (ran.plan["module"], ran.plan["code_root"]) == ("pkg.train", str(project))
    again = cluster.train(called_from=tmp_path, RESUME=ran.name, GPUS=0)
    assert again.exit_code == 0, again.output
    assert json.loads(again.lines_of("node2:1")[0])["argv"] == ["--lr", "0.1"]
    assert again.plan["code"] == ran.plan["code"]


def test_a_module_and_a_console_script_that_only_the_image_has(cluster: Cluster, project: Path) -> None:
    job = cluster.train(called_from=project, MODULE="torch.utils.collect_env", GPUS=0, NODES=1)
    assert job.exit_code == 0 and any("PyTorch version" in line for line in job.lines_of("node1:0")), job.output
    job = cluster.train(called_from=project, MODULE="torch:torchrun", ARGS="--help", GPUS=0, NODES=1)
    assert job.exit_code == 0 and any("usage: torchrun" in line for line in job.lines_of("node1:0")), job.output


def test_what_the_image_lacks_is_refused_before_anything_starts(cluster: Cluster, project: Path) -> None:
    for module, says in (
        ("timm.train", "it is not in the code root, and the image has no package of that name"),
        ("litgpt:litgpt", "the image has no package litgpt: `make image REQUIREMENTS="),
    ):
        job = cluster.train(called_from=project, MODULE=module, GPUS=0)
        assert job.exit_code == 3 and says in job.output, job.output
        assert not job.folder.exists()
        assert all(job.name not in folders for _, folders in (cluster.traces()[node] for node in NODES))
