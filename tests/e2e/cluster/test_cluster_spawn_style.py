"""On a cluster: programs that start their own processes, and programs that want their node's number and folders."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.cluster.cluster import Cluster
from tests.e2e.test_spawn_style import PER_NODE

Write = Callable[[str], Path]
pytestmark = pytest.mark.timeout(3600)

_SHOWS = """
import json, os, sys
rank, data, out, head = sys.argv[1:]
with open(data + "/numbers.txt") as file:
    number = file.read()
with open(f"{out}/from node {rank}.txt", "w") as file:
    file.write(number)
print(json.dumps([rank, data == os.environ["DATA_DIR"], out == os.environ["RUN_DIR"], head]), flush=True)
"""


def test_it_is_started_once_per_node_without_being_told(cluster: Cluster, program: Write) -> None:
    job = cluster.train(SCRIPT=program(PER_NODE), ARGS="--lr 0.1")
    assert job.exit_code == 0, job.output
    url = f"tcp://{job.plan['nodes'][0]['address']}:{job.plan['port'] + 1}"
    assert f"once per node with --rank=<node> --world-size=2 --init-method={url}" in job.output
    for label, ranks in (("node1:0", (0, 1)), ("node2:1", (2, 3))):
        assert sorted(job.lines_of(label)) == [f"rank {rank} of 4: 6.0" for rank in ranks]
    cluster.assert_nothing_runs(job)


def test_placeholders_are_what_the_ranks_see(cluster: Cluster, program: Write) -> None:
    script = program(_SHOWS)
    data = script.parent.parent / "my numbers"
    data.mkdir()
    (data / "numbers.txt").write_text("42")
    words = "{node_rank} {DATA_DIR} {RUN_DIR} {head}"
    job = cluster.train(SCRIPT=script, ARGS=words, DATA=data, PLACEHOLDERS=1, GPUS=1)
    assert job.exit_code == 0, job.output
    head = job.plan["nodes"][0]["address"]
    for number, label in enumerate(("node1:0", "node2:1")):
        assert json.loads(job.lines_of(label)[-1]) == [str(number), True, True, head]
    assert (job.folder / "from node 0.txt").read_text() == "42"
    assert (job.folder / "nodes" / "node2" / "from node 1.txt").read_text() == "42"
