"""Nodes that lack the data set get it from one that has it: forked ranks, each node with a data folder of its own."""

import json
import multiprocessing
import os
import pickle
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer.config.run_config import parse
from trainer.data.published import fetch, sharing
from trainer.data.published.catalog import CATALOG
from trainer.data.published.download import UnavailableError
from trainer.data.published.store import read, store
from trainer.distributed.world import join, leave
from trainer.errors import UserError

FORK = multiprocessing.get_context("fork")
NAME = "cifar10"


@dataclass(frozen=True, kw_only=True)
class End:
    """How a rank's call ended, and what it printed."""

    error: str | None
    code: int
    said: list[str]


def _contents() -> dict[str, bytes]:
    generator = np.random.default_rng(0)
    return {
        file: pickle.dumps({"data": generator.integers(0, 256, (4, 3072), dtype=np.uint8), "labels": [0, 1, 2, 3]})
        for file in CATALOG[NAME].files
    }


CONTENTS = _contents()


def put(folder: Path, *, published: bool = True) -> Path:
    (folder / "work").mkdir(parents=True)
    store(folder, NAME, CONTENTS, work=folder / "work", published=published)
    (folder / "work").rmdir()
    return folder


def files(folder: Path) -> dict[str, bytes]:
    """Return what counts: the record and the files it names."""
    raw = {file: (folder / CATALOG[NAME].folder / file).read_bytes() for file in CATALOG[NAME].files}
    return {"record": (folder / f"{NAME}.json").read_bytes(), **raw}


class Mirror:
    """Stands for CIFAR-10's only source: who requested from it, and which data folders it answers."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.answers: Callable[[Path], bool] = lambda folder: False

    def __call__(self, name: str, work: Path, say: object) -> dict[str, bytes]:
        with self.log.open("a") as log:
            log.write(f"{work.parent.name}\n")
        if not self.answers(work.parent):
            raise UnavailableError("no way out")
        return CONTENTS

    @property
    def asked(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    made = Mirror(tmp_path / "asked")
    monkeypatch.setattr(fetch, "_from_mirrors", made)
    monkeypatch.setattr(sharing, "PIECE_BYTES", 5_000)  # a batch has 12 kB: several pieces, the last one short
    return made


Ranks = Callable[..., list[End]]


@pytest.fixture
def ranks(tmp_path: Path, mirror: Mirror) -> Iterator[Ranks]:
    """Run the ranks of nodes with these data folders; return how each ended."""
    processes: list[multiprocessing.process.BaseProcess] = []

    def run(*folders: Path, per_node: int = 1) -> list[End]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for rank in range(len(folders) * per_node):
            node, local_rank = divmod(rank, per_node)
            env = {
                "RANK": str(rank),
                "LOCAL_RANK": str(local_rank),
                "LOCAL_WORLD_SIZE": str(per_node),
                "WORLD_SIZE": str(len(folders) * per_node),
                "GROUP_RANK": str(node),
                "GROUP_WORLD_SIZE": str(len(folders)),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "RINGMASTER_NODE": folders[node].name,
                "CUDA_VISIBLE_DEVICES": "",
            }
            report = tmp_path / f"end-{rank}.json"
            processes.append(FORK.Process(target=_one_rank, args=(env, folders[node], report)))
            processes[-1].start()
        for process in processes:
            process.join(60)
            assert process.exitcode == 0
        return [End(**json.loads((tmp_path / f"end-{rank}.json").read_text())) for rank in range(len(processes))]

    yield run
    for process in processes:
        process.kill()


def _one_rank(env: dict[str, str], folder: Path, report: Path) -> None:
    os.environ.update(env)
    said: list[str] = []
    error, code = None, 0
    world = join(parse(["--dataset", NAME, "--backend", "gloo"], {}).distributed)
    try:
        sharing.bring_everywhere(NAME, data_dir=folder, world=world, say=said.append)
    except UserError as caught:
        error, code = str(caught), caught.exit_code
    except SystemExit as caught:
        code = int(str(caught.code))
    report.write_text(json.dumps({"error": error, "code": code, "said": said}))
    leave()


@pytest.mark.parametrize("published", [True, False])
def test_nodes_that_lack_it_get_it_from_the_one_that_has_it(
    tmp_path: Path, ranks: Ranks, mirror: Mirror, published: bool
) -> None:
    one, two, three = tmp_path / "one", put(tmp_path / "two", published=published), tmp_path / "three"
    ends = ranks(one, two, three, per_node=2)
    assert [end.code for end in ends] == [0] * 6
    assert files(one) == files(two) == files(three)
    stored = read(three, NAME)
    assert stored is not None and stored.published is published
    assert mirror.asked == []
    assert [line for end in ends for line in end.said] == [
        f"{NAME}: 0 MB came from two",
        f"{NAME}: sending it from two to one, three",
        f"{NAME}: 0 MB came from two",
    ]
    assert sorted(path.name for path in three.iterdir()) == [".lock", "cifar-10-batches-py", "cifar10.json"]


def test_where_every_node_has_it_nothing_is_sent_or_said(tmp_path: Path, ranks: Ranks, mirror: Mirror) -> None:
    ends = ranks(put(tmp_path / "one"), put(tmp_path / "two"))
    assert [(end.code, end.said) for end in ends] == [(0, []), (0, [])]
    assert mirror.asked == []


def test_one_fetches_for_all(tmp_path: Path, ranks: Ranks, mirror: Mirror) -> None:
    mirror.answers = lambda folder: True
    folders = [tmp_path / name for name in ("one", "two", "three")]
    assert [end.code for end in ranks(*folders)] == [0, 0, 0]
    assert mirror.asked == ["one"]
    assert files(folders[0]) == files(folders[1]) == files(folders[2])


def test_the_next_node_tries_where_the_first_finds_no_way(tmp_path: Path, ranks: Ranks, mirror: Mirror) -> None:
    mirror.answers = lambda folder: folder.name == "two"
    folders = [tmp_path / name for name in ("one", "two", "three")]
    ends = ranks(*folders)
    assert [end.code for end in ends] == [0, 0, 0]
    assert mirror.asked == ["one", "two"]
    assert ends[0].said[:2] == [
        f"{NAME}: the authors' site: no way out",
        f"{NAME}: one can't get it; two tries now",
    ]
    assert files(folders[0]) == files(folders[1]) == files(folders[2])


def test_where_no_node_finds_a_way_the_first_says_so_once(tmp_path: Path, ranks: Ranks, mirror: Mirror) -> None:
    ends = ranks(tmp_path / "one", tmp_path / "two", per_node=2)
    assert [end.code for end in ends] == [2] * 4
    assert mirror.asked == ["one", "two"]
    assert [end.error is not None for end in ends] == [True, False, False, False]
    assert all(f"({way})" in str(ends[0].error) for way in (1, 2, 3))
    assert ends[2].said == [f"{NAME}: the authors' site: no way out"]


def test_nodes_that_share_a_folder_fetch_once_and_send_nothing(tmp_path: Path, ranks: Ranks, mirror: Mirror) -> None:
    mirror.answers = lambda folder: True
    ends = ranks(*[tmp_path / "shared"] * 3)
    assert [(end.code, end.said) for end in ends] == [(0, [])] * 3
    assert mirror.asked == ["shared"]


def test_receivers_that_share_a_folder_do_not_fight(tmp_path: Path, ranks: Ranks, mirror: Mirror) -> None:
    one = put(tmp_path / "one")
    assert [end.code for end in ranks(one, *[tmp_path / "shared"] * 2)] == [0, 0, 0]
    assert files(tmp_path / "shared") == files(one)
    assert not list((tmp_path / "shared").rglob("*.replaced"))


def test_a_node_with_a_damaged_file_gets_the_whole_one(tmp_path: Path, ranks: Ranks, mirror: Mirror) -> None:
    one, two = put(tmp_path / "one"), put(tmp_path / "two")
    target = one / CATALOG[NAME].folder / "data_batch_2"
    target.write_bytes(target.read_bytes()[:-1])
    assert [end.code for end in ranks(one, two)] == [0, 0]
    assert files(one) == files(two)
    assert mirror.asked == []


def test_a_node_that_cannot_store_it_ends_all_and_says_why(tmp_path: Path, ranks: Ranks, mirror: Mirror) -> None:
    (tmp_path / "two").write_text("a file where the folder should be")
    ends = ranks(put(tmp_path / "one"), tmp_path / "two")
    assert [end.code for end in ends] == [2, 2]
    assert ends[0].error is None and "--data-dir" in str(ends[1].error)


def test_a_fault_of_the_fetching_node_ends_all_without_others_trying(
    tmp_path: Path, ranks: Ranks, mirror: Mirror
) -> None:
    mirror.answers = lambda folder: True
    (tmp_path / "one").write_text("a file where the folder should be")
    ends = ranks(tmp_path / "one", tmp_path / "two")
    assert [end.code for end in ends] == [2, 2]
    assert "--data-dir" in str(ends[0].error) and ends[1].error is None
    assert mirror.asked == []


def test_a_set_that_vanishes_while_it_is_sent_ends_all(
    tmp_path: Path, ranks: Ranks, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sharing.verified_files

    def vanishing(root: Path, name: str) -> Iterator[tuple[str, sharing.Content]]:
        for number, item in enumerate(real(root, name)):
            yield item
            if number == 2:
                shutil.rmtree(root / CATALOG[name].folder)

    monkeypatch.setattr(sharing, "verified_files", vanishing)
    ends = ranks(put(tmp_path / "one"), tmp_path / "two")
    assert [end.code for end in ends] == [2, 2]
    assert "changed while it was sent" in str(ends[0].error) and ends[1].error is None
    assert not (tmp_path / "two" / f"{NAME}.json").exists()


def test_what_comes_damaged_is_not_stored(
    tmp_path: Path, ranks: Ranks, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sharing._announce

    def other(announced: sharing.Announcement | None, *rest: Any) -> sharing.Announcement | None:
        return real(announced and replace(announced, sha256="0" * 64), *rest)

    monkeypatch.setattr(sharing, "_announce", other)
    ends = ranks(put(tmp_path / "one"), tmp_path / "two")
    assert [end.code for end in ends] == [2, 2]
    assert "arrived damaged from one" in str(ends[1].error)
    assert not (tmp_path / "two").exists()


def test_one_rank_alone_needs_no_group(tmp_path: Path, mirror: Mirror) -> None:
    mirror.answers = lambda folder: True
    world = join(parse(["--dataset", NAME, "--backend", "gloo"], {}).distributed, {})
    sharing.bring_everywhere(NAME, data_dir=tmp_path / "one", world=world, say=print)
    assert read(tmp_path / "one", NAME) is not None
    mirror.answers = lambda folder: False
    with pytest.raises(UserError, match="three ways"):
        sharing.bring_everywhere(NAME, data_dir=tmp_path / "two", world=world, say=print)
