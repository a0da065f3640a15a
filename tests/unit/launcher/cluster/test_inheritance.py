"""A job that continues from what another one's program wrote beside its code: what is put back, where, from whom."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.cluster.inheritance import put_back
from launcher.cluster.transfer.work import PROGRAM, PYTHON
from launcher.job.folder import JobFolder, create, earlier
from launcher.job.program import user_script
from launcher.job.request import Request
from launcher.on_node.tree_store import PLAIN, Entry
from tests.support.cluster.cluster_job import SUCCEEDED
from tests.support.cluster.cluster_site import Cluster
from tests.support.cluster.worked import Worked, below, write


class Resumed:
    """A job `job` of two nodes that has ended, with results here; and the site of another one, `next`."""

    def __init__(self, top: Path) -> None:
        self.site = Cluster(top / "site")
        (top / "first").mkdir()
        self.first = Worked(top / "first")
        # The nodes of both are the same folders.
        for name, remote in self.first.remotes.items():
            jobs = Path(self.site.remotes[name].host.settings["job_dir"])
            (self.first.dirs[name] / "job").rename(jobs / "worked")
            self.first.dirs[name] = jobs
            remote.host = self.site.remotes[name].host
        self.first.plan = replace(self.first.plan, name="worked")
        shutil.rmtree(self.first.folder.path)
        create(self.first.folder, self.first.plan)
        for name in self.first.remotes:
            (self.job(name) / "plan.json").write_text(json.dumps(self.first.plan.as_json()))
            (self.job(name) / "node").write_text(name)
        self.next = JobFolder(path=self.first.folder.path.with_name("next"))
        self.notes: tuple[str, ...] = ()

    def job(self, node: str, name: str = "worked") -> Path:
        return self.first.dirs[node] / name

    def wrote(self, node: str, files: dict[str, str]) -> None:
        write(self.job(node) / "code", files)

    def end(self) -> None:
        self.first.end(self.first.job(), SUCCEEDED)

    def resume(self, name: str = "worked") -> list[dict[str, str]]:
        """Place the next job; return what each node has in its working folder, but what it has from the user."""
        site = self.site.site()
        found = site.newest(earlier(self.first.folder.path.parent, name))
        request = Request(program=user_script(self.first.root / "train.py", ()))
        plan = site.plan(self.next, request, resumes=True)
        self.notes = (*plan.notes, *found.notes)
        create(self.next, plan)
        site.place(plan, self.next, request)
        mine = below(self.first.root)
        there = [below(self.job(name, "next") / "code") for name in self.site.remotes]
        return [{path: text for path, text in each.items() if mine.get(path) != text} for each in there]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Resumed:
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    ssh.chmod(0o755)
    (ssh.parent / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{ssh.parent}:/usr/bin:/bin")
    return Resumed(tmp_path)


def test_each_node_gets_what_the_node_of_its_rank_wrote(job: Resumed) -> None:
    job.wrote("node1", {"snapshot.pt": "one", "out/a b": "x"})
    job.wrote("node2", {"snapshot.pt": "other"})
    (job.job("node1") / "code/latest").symlink_to("snapshot.pt")
    job.end()
    assert job.resume() == [
        {"snapshot.pt": "one", "out/a b": "x", "latest": "snapshot.pt"},
        {"snapshot.pt": "other"},
    ]
    assert "continues from job worked: its working folder's files; CHECKPOINT_DIR has nothing valid" in job.notes
    assert "put back into the working folder: 2 files, 4 bytes, 1 file, 5 bytes" in job.notes
    for name in job.site.remotes:
        verbs = job.site.remotes[name].verbs
        assert "take" not in verbs, "nothing came from here"
        assert not (job.job(name, "next") / "inherited-work").exists()
        assert (job.job(name, "next") / "code/snapshot.pt").stat().st_mode & 0o777 == 0o600


def test_what_was_put_back_comes_home_with_the_new_job_too(job: Resumed) -> None:
    job.wrote("node1", {"snapshot.pt": "one", "pkg/state.txt": "new"})
    job.end()
    job.resume()
    listed = job.site.remotes["node1"].run((*PYTHON, PROGRAM, "list", str(job.job("node1", "next")), ""))
    assert {row[0] for row in json.loads(listed.text)["rows"]} == {"snapshot.pt", "pkg/state.txt"}


def test_from_here_where_the_nodes_no_longer_have_it(job: Resumed) -> None:
    job.wrote("node1", {"snapshot.pt": "one", "pkg/state.txt": "new"})
    job.wrote("node2", {"snapshot.pt": "other"})
    job.end()
    for name in job.site.remotes:
        shutil.rmtree(job.job(name))
    assert job.resume() == [{"snapshot.pt": "one", "pkg/state.txt": "new"}, {"snapshot.pt": "other"}]


def test_by_the_path_of_its_folder_no_node_is_asked(job: Resumed) -> None:
    job.wrote("node1", {"snapshot.pt": "one"})
    job.end()
    (job.job("node1") / "work/snapshot.pt").write_text("another")
    assert job.resume(str(job.first.folder.path)) == [{"snapshot.pt": "one"}, {}]


def test_changed_code_wins_and_that_is_said(job: Resumed) -> None:
    job.wrote("node1", {"pkg/state.txt": "the job's", "pkg/other.txt": "the job's too"})
    job.end()
    write(job.first.root, {"pkg/state.txt": "the user's newer one"})
    assert job.resume() == [{"pkg/other.txt": "the job's too"}, {}]
    said = "pkg/state.txt: your code has changed there, so what job worked wrote is not put back"
    assert said in job.notes


def test_a_node_more_gets_what_the_first_one_wrote(job: Resumed) -> None:
    job.wrote("node1", {"snapshot.pt": "one"})
    job.end()
    plan = json.loads(job.first.folder.plan.read_text())
    plan["nodes"] = plan["nodes"][:1]
    job.first.folder.plan.write_text(json.dumps(plan))
    for name in job.site.remotes:
        (job.job(name) / "plan.json").write_text(json.dumps(plan))
    assert job.resume() == [{"snapshot.pt": "one"}, {"snapshot.pt": "one"}]


def test_a_job_that_left_nothing_at_all_is_refused_as_before(job: Resumed) -> None:
    job.end()
    with pytest.raises(RingmasterError, match="no valid checkpoint") as raised:
        job.resume()
    assert raised.value.exit_code == ExitCode.CLUSTER


def test_checkpoints_and_working_folder_together(job: Resumed) -> None:
    job.wrote("node1", {"log.txt": "one"})
    (job.job("node1") / "run/checkpoints/last.pt").write_text("state")
    job.end()
    assert job.resume()[0] == {"log.txt": "one"}
    assert (job.job("node2", "next") / "run/checkpoints/last.pt").read_text() == "state"


def test_a_node_that_can_not_be_asked_is_replaced_by_the_copy_here(job: Resumed) -> None:
    job.wrote("node2", {"snapshot.pt": "other"})
    job.wrote("node1", {"snapshot.pt": "one"})
    job.end()
    remote = job.site.remotes["node2"]
    stream = remote.stream

    def refused(words: Any, **how: Any) -> int:
        return 1 if words[4] == "describe" else stream(words, **how)

    remote.stream = refused
    assert job.resume() == [{"snapshot.pt": "one"}, {"snapshot.pt": "other"}]
    assert [line for line in job.site.printed if line.startswith("node2: can't be asked what job worked wrote there")]


A, B = "a" * 64, "b" * 64


def entry(path: str, sha256: str = A, link: str = "") -> Entry:
    return Entry(path, PLAIN, 0 if link else 1, "" if link else sha256, link)


@pytest.mark.parametrize(
    ("code", "was", "kept"),
    [
        ([], {}, True),
        ([], {"x": B}, True),
        ([entry("x", B)], {"x": B}, True),
        ([entry("x", B)], {}, False),
        ([entry("x", "c" * 64)], {"x": B}, False),
        ([entry("x", link="y")], {"x": "y"}, True),
        ([entry("x/y")], {}, False),
    ],
)
def test_the_code_wins_where_it_has_something_else_than_that_job_was_given(
    code: list[Entry], was: dict[str, str], *, kept: bool
) -> None:
    mine = entry("x")
    assert put_back([mine], was, code) == (((mine,), []) if kept else ((), ["x"]))


def test_what_the_code_has_already_needs_no_word() -> None:
    assert put_back([entry("x")], {}, [entry("x")]) == ((), [])
    assert put_back([entry("d/x")], {}, [entry("d", link="e")]) == ((), ["d/x"])
