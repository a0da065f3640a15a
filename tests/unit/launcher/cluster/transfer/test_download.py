"""Fetching what a job writes on its node: new and changed files, each whole or not. The node is a folder here."""

import errno
import os
from pathlib import Path

import paramiko
import pytest

from tests.support.cluster.download import Node
from tests.support.cluster.sftp import FakeSftp


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_of_a_file_that_grows_the_rest_is_fetched(node: Node) -> None:
    node.download.fetch_appended()
    assert node.all_here() == []
    with (node.run / "metrics.jsonl").open("w") as file:
        for text in ('{"step": 1}\n', '{"st', 'ep": 2}\n'):
            file.write(text)
            file.flush()
            node.download.fetch_appended()
            assert (node.here / "metrics.jsonl").read_bytes() == (node.run / "metrics.jsonl").read_bytes()
    (node.here / "metrics.jsonl").write_text("{" * 20)
    node.download.fetch_appended()
    assert (node.here / "metrics.jsonl").read_text() == "{" * 20, "what is here is not fetched again"


def test_only_what_is_new_or_changed_travels(node: Node) -> None:
    node.write("checkpoints/step-1.pt", "one")
    node.write("tables/a.csv", "a")
    assert node.fetch(finished=False) == ["checkpoints/step-1.pt", "tables/a.csv"]
    assert node.fetch(finished=False) == []
    node.write("tables/a.csv", "b", at=1001.0)
    assert node.fetch(finished=False) == ["tables/a.csv"]
    node.write("tables/a.csv", "longer", at=1001.0)
    assert node.fetch(finished=False) == ["tables/a.csv"]
    assert (node.here / "tables/a.csv").read_text() == "longer"
    assert (node.here / "tables/a.csv").stat().st_mtime == 1001.0


def test_what_changed_again_within_its_second_is_there_at_the_end(node: Node) -> None:
    node.write("checkpoints/step-1.pt", "one", at=1000.0)
    node.write("checkpoints/last.pt", "one", at=1010.0)
    node.fetch("checkpoints", finished=False)
    node.write("checkpoints/last.pt", "two", at=1010.0)
    assert node.fetch() == ["checkpoints/last.pt"], "the newest alone is taken once more"
    assert (node.here / "checkpoints/last.pt").read_text() == "two"


def marked(node: Node) -> None:
    """Let the node tell exact marks, as `on_node/job_folder.py` does."""

    def marks(below: str) -> dict[str, object]:
        paths = (node.run / below).rglob("*")
        return {str(path.relative_to(node.run)): path.stat().st_ctime_ns for path in paths if path.is_file()}

    node.download.marks = marks


def test_what_changed_with_its_time_kept_travels_again(node: Node) -> None:
    """As `shutil.copy2` of one checkpoint after the other to one name leaves it."""
    node.write("checkpoints/last.pt", "one", at=1000.0)
    node.write("checkpoints/step-9.pt", "new", at=9000.0)
    marked(node)
    node.fetch("checkpoints", finished=False)
    node.write("checkpoints/last.pt", "two", at=1000.0)
    assert node.fetch() == ["checkpoints/last.pt"]
    assert (node.here / "checkpoints/last.pt").read_text() == "two"


def test_where_each_change_is_seen_the_newest_is_not_fetched_once_more_at_the_end(node: Node) -> None:
    node.write("checkpoints/step-1.pt", at=1000.0)
    marked(node)
    node.fetch("checkpoints", finished=False)
    assert node.fetch() == []


def test_what_grows_is_not_fetched_as_a_file_too(node: Node) -> None:
    node.write("metrics.jsonl", '{"step": 1}\n')
    node.write("deeper/metrics.jsonl", "a user's own")
    assert node.fetch() == ["deeper/metrics.jsonl"]
    assert node.all_here() == ["deeper/metrics.jsonl", "metrics.jsonl"]


def test_a_checkpoint_that_was_removed_there_goes_here_too_but_nothing_else_does(node: Node) -> None:
    (node.here / "plan.json").write_text("ours")
    (node.here / "checkpoints").mkdir()
    (node.here / "checkpoints/step-0.pt").write_text("of an earlier job")
    old = node.write("checkpoints/step-1.pt")
    note = node.write("notes.txt")
    node.fetch()
    old.unlink()
    note.unlink()
    node.write("checkpoints/step-2.pt")
    node.fetch("checkpoints", finished=False)
    assert node.all_here() == ["checkpoints/step-0.pt", "checkpoints/step-2.pt", "notes.txt", "plan.json"]


def test_a_folder_that_is_away_is_no_reason_to_remove_anything_here(node: Node) -> None:
    """As after a reboot, if a disk was not mounted again."""
    node.write("checkpoints/step-1.pt")
    node.fetch("checkpoints", finished=False)
    node.run.rename(node.run.with_name("elsewhere"))
    with pytest.raises(FileNotFoundError):
        node.fetch()
    assert node.all_here() == ["checkpoints/step-1.pt"]


TAKEN = frozenset({"plan.json", "logs", "nodes"})


def test_what_has_a_name_that_is_ours_here_goes_aside(node: Node) -> None:
    node.download.aside, node.download.taken = node.here / "nodes" / "node1", TAKEN
    (node.here / "plan.json").write_text("ours")
    for name in ("plan.json", "logs/mine.log", "nodes/node2/x", "tables/logs/deeper"):
        node.write(name, "theirs")
    node.fetch()
    aside = [f"nodes/node1/{name}" for name in ("logs/mine.log", "nodes/node2/x", "plan.json")]
    assert node.all_here() == [*aside, "plan.json", "tables/logs/deeper"]
    assert (node.here / "plan.json").read_text() == "ours"
    (node.run / "plan.json").unlink()
    node.fetch()
    assert node.all_here() == [*aside[:2], "plan.json", "tables/logs/deeper"]
    assert (node.here / "plan.json").read_text() == "ours", "also when theirs goes"


def test_a_name_as_long_as_a_file_system_allows_comes_whole(node: Node) -> None:
    long = "x" * 255
    node.write(long, "long")
    assert node.fetch() == [long]
    assert (node.here / long).read_text() == "long"


def test_a_name_that_is_none_here_stays_there_and_is_said_and_the_others_come(node: Node) -> None:
    node.write("hostile")
    node.write("zebra")
    node.client.names["hostile"] = "x" * 300
    assert "zebra" in node.fetch()
    assert node.all_here() == ["zebra"]
    assert node.download.left_behind == [f"{'x' * 300} (File name too long)"]
    node.client.names.clear()
    node.write("hostile", "y", at=1001.0)
    node.fetch()
    assert node.download.left_behind == [], "of each fetch anew"


def test_what_stays_there_is_said_at_the_end_also_where_it_was_tried_before(node: Node) -> None:
    def unreadable(path: str) -> None:
        if path.endswith("step-1.pt"):
            raise OSError(errno.EACCES, "Permission denied")

    node.write("checkpoints/step-1.pt", at=1000.0)
    node.write("checkpoints/step-2.pt", at=2000.0)
    node.client.before_get = unreadable
    node.fetch("checkpoints", finished=False)
    node.fetch()
    assert node.download.left_behind == ["checkpoints/step-1.pt (Permission denied)"]
    node.client = FakeSftp()
    assert "checkpoints/step-1.pt" in node.fetch(), "and fetched where it can be"


def test_a_file_that_became_a_folder_stays_there_and_is_said(node: Node) -> None:
    (node.here / "results").write_text("a file")
    (node.here / "table").mkdir()
    node.write("results/a.csv")
    node.write("results/deep/a.csv")
    node.write("table")
    node.write("zebra")
    assert "zebra" in node.fetch()
    assert (node.here / "results").read_text() == "a file"
    assert [each.partition(" (")[0] for each in node.download.left_behind] == [
        "results/a.csv",
        "results/deep/a.csv",
        "table",
    ]


def test_names_that_are_not_utf8_stay_there_and_are_said(node: Node) -> None:
    node.write("theirs/a")
    node.write("zebra")
    node.client.undecodable = "theirs"
    assert node.fetch() == ["zebra"]
    assert node.download.left_behind == ["all in theirs (names that are not UTF-8)"]


def test_a_disk_that_is_full_here_is_no_trouble_of_one_file(node: Node) -> None:
    def full(path: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    node.write("a")
    node.client.before_get = full
    with pytest.raises(OSError, match="No space left"):
        node.fetch()
    assert (node.all_here(), node.download.left_behind) == ([], [])


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_metrics_that_are_no_file_are_not_opened(node: Node, tmp_path: Path, kind: str) -> None:
    path = node.run / "metrics.jsonl"
    (tmp_path / "theirs").write_text("secret")
    create = {
        "pipe": lambda: os.mkfifo(path),
        "link": lambda: path.symlink_to(tmp_path / "theirs"),
        "folder": path.mkdir,
    }
    create[kind]()
    node.client.opened.clear()
    node.download.fetch_appended()
    assert (node.all_here(), node.client.opened) == ([], [])


UNFINISHED = (".step-1.pt", "step-1.pt.part", "step-1.pt.tmp", "step-1.pt.new", "step-1.pt.partial")


@pytest.mark.parametrize("name", UNFINISHED)
def test_what_is_still_being_written_waits(node: Node, name: str) -> None:
    node.write(f"checkpoints/{name}")
    assert node.fetch("checkpoints", finished=False) == []
    assert node.fetch("checkpoints", finished=True) == [f"checkpoints/{name}"], "nobody writes any more"


def test_a_folder_that_is_not_there_is_empty(node: Node) -> None:
    assert node.fetch("checkpoints", finished=False) == []


def test_links_come_along_unless_they_lead_out(node: Node, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s")
    node.write("checkpoints/step-1.pt")
    for name, leads in {
        "checkpoints/last.pt": "step-1.pt",
        "checkpoints/gone.pt": "nowhere",
        "out": str(secret),
        "up": "../../../secret",
        "down-and-up": "checkpoints/../../secret",
    }.items():
        (node.run / name).symlink_to(leads)
    node.fetch()
    assert node.all_here() == ["checkpoints/gone.pt", "checkpoints/last.pt", "checkpoints/step-1.pt"]
    assert (node.here / "checkpoints/last.pt").readlink() == Path("step-1.pt")


def test_a_link_that_was_moved_on_leads_on_here_too(node: Node) -> None:
    node.write("checkpoints/step-1.pt", "one")
    node.write("checkpoints/step-2.pt", "two")
    last = node.run / "checkpoints/last.pt"
    for step in ("step-1.pt", "step-2.pt"):
        last.unlink(missing_ok=True)
        last.symlink_to(step)
        os.utime(last, (1000.0, 1000.0 + len(node.all_here())), follow_symlinks=False)
        node.fetch()
        assert (node.here / "checkpoints/last.pt").readlink() == Path(step)
    assert (node.here / "checkpoints/step-1.pt").read_text() == "one", "not written through"


@pytest.mark.parametrize("name", ["../outside", "../../node/outside", "hostile/../../outside", "..", ".", ""])
def test_names_that_lead_out_are_left(node: Node, name: str) -> None:
    node.write("fine")
    node.write("hostile")
    node.write("../outside")
    node.client.names["hostile"] = name
    assert node.fetch() == ["fine"]
    assert node.all_here() == ["fine"]
    assert list(node.here.parent.iterdir()) == [node.here]


def test_a_pipe_is_left(node: Node) -> None:
    os.mkfifo(node.run / "pipe")
    assert node.fetch() == []


def test_a_file_that_vanishes_meanwhile_is_no_error(node: Node) -> None:
    going = node.write("checkpoints/step-1.pt")
    node.write("checkpoints/step-2.pt")
    node.client.before_get = lambda path: going.unlink(missing_ok=True)
    node.fetch("checkpoints", finished=False)
    assert node.all_here() == ["checkpoints/step-2.pt"]


def test_the_connection_is_asked_for_each_time(node: Node) -> None:
    before = node.connections
    node.download.fetch_appended()
    node.download.fetch_appended()
    assert node.connections == before + 2
    node.client.broken = True
    with pytest.raises(paramiko.SSHException):
        node.download.fetch_appended()
