"""A transfer that is under way: it breaks, is not alone, or is not wanted any more. The node is a folder here."""

from pathlib import Path
from typing import Any

import pytest

from launcher.cluster.transfer import download
from launcher.cluster.transfer.download import FolderDownload
from tests.support.cluster.download import Node
from tests.support.cluster.sftp import FakeSftp


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_connection_that_breaks_leaves_no_half_file_and_the_next_fetch_has_it(node: Node) -> None:
    node.write("checkpoints/step-1.pt", "new")
    (node.here / "checkpoints").mkdir()
    (node.here / "checkpoints/step-1.pt").write_text("old")

    def breaks(path: str) -> None:
        assert len(node.all_here()) == 2, "a part of it is here"
        raise EOFError

    node.client.after_block = breaks
    with pytest.raises(EOFError):
        node.fetch()
    assert node.all_here() == ["checkpoints/step-1.pt"]
    assert (node.here / "checkpoints/step-1.pt").read_text() == "old"
    node.client = FakeSftp()
    assert node.fetch() == ["checkpoints/step-1.pt"]
    assert (node.here / "checkpoints/step-1.pt").read_text() == "new"


def test_two_fetches_at_once_do_not_share_a_part(node: Node) -> None:
    """As the one while a job runs and the one at its end, or `make train` and `make logs` of one job."""
    content = "0123456789"
    node.write("checkpoints/step-1.pt", content)
    other = Node.__new__(Node)
    other.run, other.here, other.client, other.connections = node.run, node.here, FakeSftp(), 0
    other.download = FolderDownload(remote=other._remote, source=node.download.source, target=node.here)
    node.client.block = other.client.block = 2

    def breaks(path: str) -> None:
        raise EOFError

    def meanwhile(path: str) -> None:
        with pytest.raises(EOFError):
            other.fetch()

    node.client.after_block, other.client.after_block = meanwhile, breaks
    assert node.fetch() == ["checkpoints/step-1.pt"]
    assert node.all_here() == ["checkpoints/step-1.pt"]
    assert (node.here / "checkpoints/step-1.pt").read_text() == content


def test_a_file_that_grows_while_it_is_fetched_waits_and_holds_up_no_other(node: Node) -> None:
    growing = node.write("checkpoints/mine.pt", "half")
    node.write("checkpoints/step-1.pt")
    attributes = node.client.listdir_attr

    def grows(path: str) -> Any:
        listed = attributes(path)
        if growing.name in {each.filename for each in listed}:
            growing.write_text("half and more")
        return listed

    node.client.listdir_attr = grows  # type: ignore[method-assign]
    node.fetch("checkpoints", finished=False)
    assert node.all_here() == ["checkpoints/step-1.pt"]
    growing.write_text("ha")
    node.fetch(finished=True)
    assert node.download.left_behind == ["checkpoints/mine.pt (it changed while it was fetched)"]
    node.client.listdir_attr = attributes  # type: ignore[method-assign]
    node.fetch(finished=True)
    assert node.download.left_behind == []
    assert (node.here / "checkpoints/mine.pt").read_text() == "half and more"


def test_progress_of_a_long_transfer_is_said(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    node.download.say = said.append
    node.write("checkpoints/step-1.pt", "0123456789")
    node.client.block = 4
    monkeypatch.setattr(download, "_PROGRESS_S", 0.0)
    node.fetch()
    assert said == [f"fetching checkpoints/step-1.pt: {done} bytes of 10 bytes" for done in (4, 8, 10)]


def test_a_transfer_that_nobody_wants_ends_at_the_next_block(node: Node) -> None:
    blocks: list[str] = []

    def unwanted(path: str) -> None:
        blocks.append(path)
        node.download.give_up()

    node.write("checkpoints/step-1.pt", "0123456789")
    node.client.block, node.client.after_block = 4, unwanted
    with pytest.raises(download.GivenUpError):
        node.fetch()
    assert (len(blocks), node.all_here()) == (1, [])
