"""Two torchrun agents, each with a data folder, without internet: both train on the data that one has."""

import hashlib
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from launcher.local import machine
from trainer.data.published.catalog import CATALOG
from trainer.data.published.store import read, store

ROOT = Path(__file__).parents[2]
NAME = "cifar10"
pytestmark = pytest.mark.timeout(1500)
IMAGES = 1500
"""Per batch: 4.6 MB, more than one piece."""


def _environment(node: str) -> dict[str, str]:
    mine = {
        name: value
        for name, value in os.environ.items()
        if not (name.startswith("RINGMASTER_") or name.lower().endswith("_proxy"))
    }
    nowhere = f"http://127.0.0.1:{machine.free_port(machine.LOOPBACK)}"  # nothing listens there
    return {
        **mine,
        "http_proxy": nowhere,
        "https_proxy": nowhere,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "RINGMASTER_JOB": "test",
        "RINGMASTER_NODE": node,
        "CUDA_VISIBLE_DEVICES": "",
    }


def _train(folder: Path) -> list[tuple[int, str, str]]:
    """Return exit code, standard output and errors of two nodes with data in node0/ and node1/ below `folder`."""
    port = machine.free_port(machine.LOOPBACK)
    agents = []
    for node in range(2):
        rendezvous = [f"--node-rank={node}", "--master-addr=127.0.0.1", f"--master-port={port}", "--nnodes=2"]
        flags = ["--dataset", NAME, "--model", "tutorial-cnn", "--max-steps", "2", "--max-val-items", "64"]
        command = [sys.executable, "-m", "torch.distributed.run", *rendezvous, "-m", "trainer", *flags]
        folders = ["--data-dir", str(folder / f"node{node}"), "--run-dir", str(folder / "run")]
        agents.append(
            subprocess.Popen(
                [*command, *folders],
                cwd=ROOT,
                env=_environment(f"node{node}"),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        said = [agent.communicate(timeout=400) for agent in agents]
    finally:
        for agent in agents:
            agent.kill()
    return [(agent.returncode, *texts) for agent, texts in zip(agents, said, strict=True)]


def _put(folder: Path) -> None:
    generator = np.random.default_rng(0)
    contents = {
        file: pickle.dumps(
            {
                "data": generator.integers(0, 256, (IMAGES, 3072), dtype=np.uint8),
                "labels": generator.integers(0, 10, IMAGES).tolist(),
            }
        )
        for file in CATALOG[NAME].files
    }
    (folder / "work").mkdir(parents=True)
    store(folder, NAME, contents, work=folder / "work", published=True)


def _hashes(folder: Path) -> dict[str, str]:
    paths = [folder / f"{NAME}.json", *(folder / CATALOG[NAME].folder / file for file in CATALOG[NAME].files)]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def test_a_node_without_internet_trains_on_what_the_other_has(tmp_path: Path) -> None:
    _put(tmp_path / "node1")
    ends = _train(tmp_path)
    assert [code for code, _, _ in ends] == [0, 0], ends
    assert _hashes(tmp_path / "node0") == _hashes(tmp_path / "node1")
    stored = read(tmp_path / "node0", NAME)
    assert stored is not None and stored.published
    assert f"{NAME}: 28 MB came from node1\n" in ends[0][1]
    assert f"{NAME}: sending it from node1 to node0\n" in ends[1][1]


def test_without_any_way_to_the_data_one_error_tells_the_ways_out(tmp_path: Path) -> None:
    ends = _train(tmp_path)
    assert all(code != 0 for code, _, _ in ends)
    assert [errors.count("trainer: error: could not get the data set") for _, _, errors in ends] == [1, 0]
    assert all("exitcode  : 2" in errors for _, _, errors in ends)
    assert all("the authors' site: " in output for _, output, _ in ends), "each node says why it has no way"
    assert "node0 can't get it; node1 tries now" in ends[0][1]
