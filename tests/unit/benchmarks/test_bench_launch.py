"""Launching on a cluster: what is kept of each run, without a cluster."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import launch
from launcher.base.errors import RingmasterError

MARKS = {"make and Python up": 0.1, "inventory": 0.3, "first step": 6.3}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int], Path]:
    """Puts a made-up cluster of some nodes, and runs that take no time, in the place of real ones."""

    def make(nodes: int) -> Path:
        ssh = SimpleNamespace(options=lambda _options: ["-p", "22"])
        hosts = [SimpleNamespace(name=f"node{number}", address="10.0.0.1", ssh=ssh) for number in range(nodes)]
        inventory = tmp_path / "mine.yml"
        inventory.touch()
        plan = SimpleNamespace(nodes=hosts[:2], name="bench-x", world_size=4, backend="gloo")
        opened = SimpleNamespace(path=inventory, hosts=hosts, pins=tmp_path / "known_hosts")
        monkeypatch.setattr(launch, "open_inventory", lambda _path: opened)
        monkeypatch.setattr(launch, "pinning_options", lambda _pins: [])
        monkeypatch.setattr(launch, "_planned", lambda _path: plan)
        monkeypatch.setattr(launch, "_forget", lambda *_: None)
        monkeypatch.setattr(launch, "_by_hand", lambda *_: 6.0)

        def train(_path: object, _plan: object, _shells: object, marks: list[dict[str, float]]) -> float:
            marks.append(MARKS)
            return MARKS["first step"]

        monkeypatch.setattr(launch, "_make_train", train)
        return inventory

    return make


@pytest.mark.parametrize(("quick", "runs"), [(False, 7), (True, 3)])
def test_both_ways_their_ratio_and_each_phase_are_kept(cluster: Callable[[int], Path], quick: bool, runs: int) -> None:
    result = launch.measure(quick, str(cluster(3)))
    assert [(row.label, row.n, round(row.median, 3)) for row in result.rows] == [
        ("`make train NODES=2`", runs, 6.3),
        ("shell script, two `ssh`", runs, 6.0),
        ("`make train`: make and Python up", runs, 0.1),
        ("`make train`: inventory", runs, 0.2),
        ("`make train`: first step", runs, 6.0),
    ]
    assert [(ratio.label, round(ratio.value or 0, 3)) for ratio in result.ratios] == [
        ("make train / shell script", 1.05)
    ]
    assert "Two nodes of mine.yml, 4 ranks, backend gloo" in result.notes[0]


def test_one_node_is_too_few(cluster: Callable[[int], Path]) -> None:
    inventory = cluster(1)
    with pytest.raises(RingmasterError, match=r"mine\.yml: launching is measured on two nodes; it has 1"):
        launch.measure(False, str(inventory))
