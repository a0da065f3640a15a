"""What a program writes into its working folder comes home: while it runs, at the end, and within limits."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.cluster import working_folders
from launcher.cluster.transfer import policy, work
from launcher.follow.outcome import Outcome
from launcher.job.folder import JobFolder
from launcher.on_node import work_folder
from tests.support.cluster.cluster_job import SUCCEEDED
from tests.support.cluster.live_engine import until
from tests.support.cluster.worked import Worked, below, write

Make = Callable[..., Worked]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Worked] = []

    def nodes(**how: Any) -> Worked:
        made.append(Worked(tmp_path, **how))
        return made[-1]

    yield nodes
    for each in made:
        for job in each.jobs:
            job._ended.set()
            job._work.end(let_go=True)


@pytest.fixture
def nodes(make: Make) -> Worked:
    return make()


def test_what_a_program_writes_beside_its_code_comes_home(nodes: Worked) -> None:
    write(nodes.code("node1"), {"snapshot.pt": "one", "out/log.txt": "a"})
    write(nodes.code("node2"), {"snapshot.pt": "other"})
    nodes.end(nodes.job(), SUCCEEDED)
    assert nodes.home() == {"snapshot.pt": "one", "out/log.txt": "a"}
    assert nodes.home("node2") == {"snapshot.pt": "other"}
    assert nodes.folder.work_of("node2", head=False) == nodes.folder.path / "nodes/node2/work"
    (line,) = nodes.printed
    assert line.startswith("what the program wrote into its working folder is in ")
    assert line.endswith("runs/worked/work and " + line.split(" and ")[1]) and line.endswith(": 3 files, 9 bytes")


def test_the_nodes_keep_it_and_nothing_else_of_the_code(nodes: Worked) -> None:
    write(nodes.code("node1"), {"out/snapshot.pt": "one", "pkg/__pycache__/x.pyc": "junk"})
    nodes.end(nodes.job(), SUCCEEDED)
    top = nodes.dirs["node1"] / "job"
    assert below(top / "work") == {"out/snapshot.pt": "one"} and not (top / "code").exists()
    assert not (nodes.dirs["node2"] / "job/work").exists() and not (top / work_folder.LEFT).exists()


def test_a_job_that_wrote_nothing_there_says_nothing(nodes: Worked) -> None:
    nodes.end(nodes.job(), SUCCEEDED)
    assert nodes.printed == [] and not (nodes.folder.path / "work").exists()


def test_it_comes_while_the_job_runs_from_all_nodes(nodes: Worked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working_folders, "_EVERY_S", 0.01)
    monkeypatch.setattr(working_folders, "_SHARE", 0)
    nodes.job()
    write(nodes.code("node1"), {"snapshot.pt": "one", "half.pt.tmp": "ha"})
    write(nodes.code("node2"), {"snapshot.pt": "other"})
    until(lambda: nodes.home() == {"snapshot.pt": "one"} and nodes.home("node2") == {"snapshot.pt": "other"})
    write(nodes.code("node1"), {"snapshot.pt": "newer"}, at=2000.0)
    until(lambda: nodes.home() == {"snapshot.pt": "newer"})


def test_a_file_that_the_program_removes_stays_at_home(nodes: Worked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working_folders, "_EVERY_S", 0.01)
    job = nodes.job()
    write(nodes.code("node1"), {"old.pt": "old"})
    until(lambda: nodes.home() == {"old.pt": "old"})
    (nodes.code("node1") / "old.pt").unlink()
    write(nodes.code("node1"), {"new.pt": "new"})
    nodes.end(job, SUCCEEDED)
    assert nodes.home() == {"old.pt": "old", "new.pt": "new"}


def test_changed_code_comes_home_and_leaves_the_users_own_alone(nodes: Worked) -> None:
    write(nodes.code("node1"), {"pkg/state.txt": "new"})
    write(nodes.code("node1"), {"pkg/other.txt": "same"}, at=3000.0)  # touched, and what it was
    nodes.end(nodes.job(), SUCCEEDED)
    assert nodes.home() == {"pkg/state.txt": "new"}
    assert (nodes.root / "pkg/state.txt").read_text() == "old"


HOSTILE = ("-rf", "a b", "q\"uo'te", "new\nline", "$(x)", "ü训练", b"\xff\xfe".decode("utf-8", "surrogateescape"))


def test_names_that_hardly_anybody_has(nodes: Worked) -> None:
    files = {f"out {name}/{name}": name for name in HOSTILE}
    write(nodes.code("node1"), files)
    nodes.end(nodes.job(), SUCCEEDED)
    assert nodes.home() == files


def test_links_stay_links_and_lead_nowhere_else(nodes: Worked, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the node's own")
    code = nodes.code("node1")
    write(code, {"out/step-1.pt": "1"})
    (code / "out/latest.pt").symlink_to("step-1.pt")
    (code / "run").symlink_to("out")
    (code / "away").symlink_to(secret)
    (code / "up").symlink_to("../../..")
    os.mkfifo(code / "pipe")
    nodes.end(nodes.job(), SUCCEEDED)
    assert nodes.home() == {"out/step-1.pt": "1", "out/latest.pt": "step-1.pt", "run": "out"}
    (line,) = (each for each in nodes.printed if "stays there" in each)
    assert "away (a link that leads out of the folder)" in line and "up (a link" in line


def test_a_folder_that_becomes_a_link_leads_to_nothing_of_the_nodes(nodes: Worked, tmp_path: Path) -> None:
    """Between the look and the fetch."""
    secret = tmp_path / "node's own"
    write(secret, {"key": "0123456789"})
    write(nodes.code("node1"), {"out/key": "0123456789"})
    remote = nodes.remotes["node1"]
    run = remote.run

    def swapped(words: Any, **how: Any) -> Any:
        if words[4] == "send":
            (nodes.code("node1") / "out").rename(tmp_path / "away")
            (nodes.code("node1") / "out").symlink_to(secret)
        return run(words, **how)

    remote.run = swapped
    nodes.end(nodes.job(), SUCCEEDED)
    assert nodes.home() == {}


def test_a_file_that_changes_while_it_is_fetched_is_not_taken_for_whole(nodes: Worked) -> None:
    write(nodes.code("node1"), {"a.pt": "first"})
    remote, run = nodes.remotes["node1"], nodes.remotes["node1"].run

    def written_to(words: Any, **how: Any) -> Any:
        if words[4] == "send":
            write(nodes.code("node1"), {"a.pt": "longer than it was"}, at=5000.0)
        return run(words, **how)

    remote.run = written_to
    job = nodes.job()
    assert job.collect(SUCCEEDED) == SUCCEEDED
    assert nodes.home() == {}
    remote.run = run
    job.collect(SUCCEEDED)
    assert nodes.home() == {"a.pt": "longer than it was"}


def test_what_is_too_large_stays_there_and_is_named_with_its_place(make: Make) -> None:
    nodes = make(work_limit=5)
    write(nodes.code("node1"), {"small.pt": "1234", "large.pt": "123456"})
    nodes.end(nodes.job(), SUCCEEDED)
    assert nodes.home() == {"small.pt": "1234"}
    place = nodes.dirs["node1"] / "job/work"
    assert (place / "large.pt").read_text() == "123456" and (place.parent / "left").exists()
    line = f"node1: stays there, in {place}: large.pt (6 bytes; the limit is 5 bytes a file); "
    assert line + "make logs NAME=job WORK_LIMIT=… fetches it" in nodes.printed


def test_the_limit_is_that_of_the_job_on_all_nodes(make: Make) -> None:
    nodes = make(work_limit=5)
    write(nodes.code("node1"), {"a.pt": "123"})
    write(nodes.code("node2"), {"b.pt": "123", "c.pt": "12"})
    nodes.end(nodes.job(), SUCCEEDED)
    assert (nodes.home(), nodes.home("node2")) == ({"a.pt": "123"}, {"c.pt": "12"})
    assert [line for line in nodes.printed if "b.pt (3 bytes; the limit is 5 bytes a job)" in line]


def test_with_a_limit_of_nothing_nothing_comes_and_all_is_named(make: Make) -> None:
    nodes = make(work_limit=0)
    write(nodes.code("node1"), {"a.pt": "123"})
    nodes.end(nodes.job(), SUCCEEDED)
    assert nodes.home() == {} and "a.pt (WORK_LIMIT=0)" in nodes.printed[0]


def test_another_command_with_a_higher_limit_fetches_the_rest(make: Make) -> None:
    nodes = make(work_limit=5)
    write(nodes.code("node1"), {"large.pt": "123456"})
    nodes.end(nodes.job(), SUCCEEDED)
    later = nodes.job(work_limit=100)
    later.collect(SUCCEEDED)
    later.fetch_closed()
    assert nodes.home() == {"large.pt": "123456"}
    assert not (nodes.dirs["node1"] / "job/left").exists(), "its folder may be removed one day"


def test_what_is_here_is_not_fetched_a_second_time(nodes: Worked) -> None:
    write(nodes.code("node1"), {"a.pt": "123"})
    nodes.end(nodes.job(), SUCCEEDED)
    nodes.remotes["node1"].verbs.clear()
    nodes.job().collect(SUCCEEDED)
    assert "list" in nodes.remotes["node1"].verbs and "send" not in nodes.remotes["node1"].verbs


def test_very_many_files_choke_nothing(nodes: Worked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "MOST_FILES", 30)
    source = work.PROGRAM.replace("MOST_FILES = 10_000", "MOST_FILES = 40")
    assert source != work.PROGRAM
    monkeypatch.setattr(work, "PROGRAM", source)
    write(nodes.code("node1"), {f"out/{number}": "x" for number in range(100)})
    nodes.end(nodes.job(), SUCCEEDED)
    assert len(nodes.home()) == 30
    (line,) = (each for each in nodes.printed if "stays there" in each)
    assert "60 files more, 60 bytes" in line and "the limit is 30 files" in line and line.count("out/") <= 5


def test_whoever_lets_the_job_go_on_waits_for_nothing(nodes: Worked) -> None:
    write(nodes.code("node1"), {"a.pt": "123"})
    nodes.job().collect(Outcome(state="detached", exit_code=SUCCEEDED.exit_code))
    assert nodes.home() == {} and (nodes.code("node1") / "train.py").exists()


def test_a_transfer_that_nobody_wants_ends(nodes: Worked) -> None:
    write(nodes.code("node1"), {"a.pt": "123"})
    job = nodes.job()
    job._work._given_up = given_up = threading.Event()
    for download in job._work._downloads.values():
        download.given_up = given_up
    given_up.set()
    job.collect(SUCCEEDED)
    assert nodes.home() == {} and "job/code/a.pt" in str(nodes.code("node1") / "a.pt")
    assert [line for line in nodes.printed if "was not fetched" in line]


def test_a_scripts_own_folder_called_work_is_in_nobodys_way(nodes: Worked) -> None:
    nodes.write("node1", "work/mine", "theirs")
    nodes.write("node2", "work/mine", "theirs")
    write(nodes.code("node1"), {"mine": "work's"})
    write(nodes.code("node2"), {"mine": "work's"})
    nodes.end(nodes.job(), SUCCEEDED)
    assert nodes.home() == nodes.home("node2") == {"mine": "work's"}
    assert (nodes.folder.path / "nodes/node1/work/mine").read_text() == "theirs"
    assert (nodes.folder.path / "nodes/node2/run/work/mine").read_text() == "theirs"


def test_what_a_nodes_answer_names_elsewhere_is_not_written(nodes: Worked, tmp_path: Path) -> None:
    assert not any(
        work._proper(work.Row(path, 1, 1, 1, 0, "", "")) for path in ("../x", "/x", "a/../../x", "", "a//b", "a\0")
    )
    assert work._proper(work.Row("a/b", 1, -1, 1, 0, "", ""))


def test_which_code_was_replaced_is_known_here_too(nodes: Worked) -> None:
    write(nodes.code("node1"), {"pkg/state.txt": "new"})
    nodes.end(nodes.job(), SUCCEEDED)
    (was,) = working_folders.replaced_here(nodes.folder)["node1"].items()
    assert was[0] == "pkg/state.txt" and len(was[1]) == 64
    assert working_folders.replaced_here(JobFolder(path=Path("/nowhere"))) == {}
