"""What a program writes into its working folder comes home, each node's to its place; RESUME puts it back."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.cluster.cluster import NODES, Cluster
from tests.e2e.jobs import Job

pytestmark = pytest.mark.timeout(3600)

_JOBS = "/var/lib/ringmaster/jobs"
_PROGRAM = """
import os, time
node, run = os.environ["RINGMASTER_NODE"], os.environ["RUN_DIR"]
def text(name):
    return open(name).read() if os.path.exists(name) else "nothing"
print("found", [text(name) for name in ("snapshot.pt", "out/a b/log.txt", "state.txt")],
      os.path.exists("large.bin"), flush=True)
os.makedirs("out/a b", exist_ok=True)
for name in ("snapshot.pt", "out/a b/log.txt"):
    with open(name + ".new", "w") as file:
        file.write(f"{name} of {node}")
    os.replace(name + ".new", name)
with open("state.txt", "a") as file:
    file.write(" and " + node)
with open("large.bin", "wb") as file:
    file.write(bytes(3_000_000))
while os.environ.get("WAITS") and not os.path.exists(f"{run}/go on"):
    time.sleep(0.1)
"""
_LARGE = "large.bin (3.0 MB; the limit is 1.0 MB a file)"


@pytest.fixture
def script(program: Callable[[str], Path]) -> Path:
    path = program(_PROGRAM)
    path.with_name("state.txt").write_text("as the user has it")
    return path


def work(job: Job, node: str) -> Path:
    return job.folder / ("work" if node == NODES[0] else f"nodes/{node}/work")


def written(job: Job, node: str) -> dict[str, str]:
    """What has come home of a node's working folder."""
    top = work(job, node)
    return {str(path.relative_to(top)): path.read_text() for path in top.rglob("*") if path.is_file()}


def expected(node: str) -> dict[str, str]:
    texts = {name: f"{name} of {node}" for name in ("snapshot.pt", "out/a b/log.txt")}
    return {**texts, "state.txt": f"as the user has it and {node}"}


def test_it_comes_home_within_limits_and_is_there_again(cluster: Cluster, script: Path) -> None:
    job = cluster.train(NODES=2, GPUS=1, SCRIPT=script, WORK_LIMIT="1M")
    assert job.exit_code == 0, job.output
    for node in NODES:
        assert written(job, node) == expected(node)
        place = f"{_JOBS}/{job.name}/work"
        assert f"{node}: stays there, in {place}: {_LARGE}" in job.output
        assert cluster.ssh(node, "stat", "-c", "%s", f"{place}/large.bin") == "3000000\n"
        assert "script.py" not in cluster.ssh(node, "ls", place).split(), "the code itself is gone"
    assert "what the program wrote into its working folder is in " in job.output
    assert script.with_name("state.txt").read_text() == "as the user has it"

    again = cluster.train(NODES=2, GPUS=1, RESUME=job.name, WORK_LIMIT="1M")
    assert again.exit_code == 0, again.output
    for rank, node in enumerate(NODES):
        assert again.lines_of(f"{node}:{rank}")[0] == f"found {list(expected(node).values())} True"
        assert written(again, node)["state.txt"] == f"as the user has it and {node} and {node}"

    more = cluster.make("logs", NAME=job.name, WORK_LIMIT="10M")
    assert more.exit_code == 0, more.output
    assert [(work(job, node) / "large.bin").stat().st_size for node in NODES] == [3_000_000, 3_000_000]

    script.with_name("state.txt").write_text("changed since")
    for node in NODES:
        cluster.ssh(node, "rm", "-r", f"{_JOBS}/{job.name}")
    from_here = cluster.train(NODES=2, GPUS=1, RESUME=job.name)
    assert from_here.exit_code == 0, from_here.output
    assert "state.txt: your code has changed there" in from_here.output
    for rank, node in enumerate(NODES):
        texts = [*list(expected(node).values())[:2], "changed since"]
        assert from_here.lines_of(f"{node}:{rank}")[0] == f"found {texts} True"


def test_it_comes_while_the_job_runs_and_nobody_waits_for_it(cluster: Cluster, script: Path) -> None:
    running = cluster.start(NODES=2, GPUS=1, SCRIPT=script, ENV="WAITS=1")
    for node in NODES:
        running.until(lambda node=node: written(running.job, node) == expected(node) | {"large.bin": "\0" * 3_000_000})
        cluster.ssh(node, "touch", f"{_JOBS}/{running.job.name}/run/go on")
    job = running.ended()
    assert job.exit_code == 0, job.output


def test_of_a_detached_job_whoever_follows_it_brings_it_home(cluster: Cluster, script: Path) -> None:
    job = cluster.train(NODES=2, GPUS=1, SCRIPT=script, DETACH=1, WORK_LIMIT="1M")
    assert job.exit_code == 0, job.output
    done = cluster.make("logs", NAME=job.name)
    assert done.exit_code == 0, done.output
    assert [written(job, node) for node in NODES] == [expected(node) for node in NODES]
    assert _LARGE in done.output
