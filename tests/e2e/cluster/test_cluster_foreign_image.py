"""An image that `make image` did not build, named in the inventory: used as it is, with another layout than ours."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster.cluster import NODES, Cluster

pytestmark = pytest.mark.timeout(3600)

# The packages are where our own image has them (a layer of 6 GB is there already), but nothing that starts them is.
_DOCKERFILE = """
FROM ringmaster-test-base
USER 0
RUN rm -r /opt/venv/bin /opt/ringmaster /usr/bin/tini /opt/venv/lib/python3*/site-packages/ringmaster_exit* && \\
    packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && mkdir -p "$packages" && \\
    echo /opt/venv/lib/python3*/site-packages >"$packages/elsewhere.pth" && ln -s /usr/bin/python3 /usr/local/bin/python
ENV PATH=/usr/local/bin:/usr/bin:/bin
LABEL ringmaster.trainer="" ringmaster.cuda="" ringmaster.packages="" ringmaster.layers=""
ENTRYPOINT ["/bin/false"]
"""
_SCRIPT = """
import getpass, os, sys
import torch
from torch import distributed
distributed.init_process_group("gloo")
total = torch.ones(1)
distributed.all_reduce(total)
open(os.path.join(os.path.expanduser("~"), "mine"), "w").close()
print("sum", int(total), "uid", os.getuid(), getpass.getuser(), "quiet end", "ringmaster_exit" in sys.modules)
print("python", sys.executable, "as process", os.path.basename(os.readlink("/proc/1/exe")))
"""


@pytest.fixture(scope="module")
def foreign(cluster: Cluster) -> Iterator[str]:
    """The image's ID; only node1 has it."""
    node = NODES[0]
    cluster.ssh(node, "docker", "tag", cluster.image, "ringmaster-test-base")
    build = f"printf %s '{_DOCKERFILE.replace(chr(39), chr(39) + chr(92) + chr(39) * 2)}'"
    build += " | DOCKER_BUILDKIT=1 docker build --quiet --tag ringmaster-test-foreign -"
    image = cluster.ssh(node, "sh", "-c", build).strip()
    yield image
    for node in NODES:
        cluster.ssh(node, "docker", "image", "rm", "--force", image)
    cluster.ssh(NODES[0], "docker", "image", "rm", "ringmaster-test-base")


def inventory_for(cluster: Cluster, folder: Path, image: str) -> Path:
    return cluster.inventory_with(folder, ("  vars:\n", f"  vars:\n    ringmaster_image: {image}\n"))


def test_it_is_brought_to_the_nodes_and_runs_a_script(
    cluster: Cluster, foreign: str, program: Callable[[str], Path], tmp_path: Path
) -> None:
    inventory = inventory_for(cluster, tmp_path / "inventory", foreign)
    job = cluster.train(INVENTORY=inventory, SCRIPT=program(_SCRIPT), GPUS=0)
    assert job.exit_code == 0, job.output
    assert "node2: the image is not there: first, deliver it to node2" in job.output
    for rank, node in enumerate(NODES):
        uid = cluster.ssh(node, "id", "-u").strip()
        assert job.lines_of(f"{node}:{rank}")[:2] == [
            f"sum 2 uid {uid} ringmaster quiet end True",
            "python /usr/local/bin/python as process docker-init",
        ]
        assert cluster.ssh(node, "ls", f"/var/lib/ringmaster/jobs/{job.name}").split().count("ours") == 0
    cluster.assert_nothing_runs(job)


def test_it_is_named_by_a_registrys_digest_and_runs_the_bundled_trainer(
    cluster: Cluster, foreign: str, tmp_path: Path
) -> None:
    names = cluster.ssh("node2", "docker", "image", "inspect", "--format", "{{index .RepoDigests 0}}", foreign)
    inventory = inventory_for(cluster, tmp_path / "inventory", names.split()[0])
    job = cluster.train(INVENTORY=inventory, ARGS="--dataset synthetic --max-steps 2", GPUS=0)
    assert job.exit_code == 0, job.output
    assert "torch 2." in job.output and "the image is not there" not in job.output
