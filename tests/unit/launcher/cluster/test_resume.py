"""A job that continues from an earlier one: who is asked, what is chosen, and how it reaches the nodes."""

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.node_table import Row
from launcher.cluster import site as cluster_site
from launcher.cluster.site import ClusterSite
from launcher.inventory.hosts import Host
from launcher.job.checkpoint import Checkpoint, inherit
from launcher.job.folder import Earlier, JobFolder, create, earlier
from launcher.job.program import user_script
from launcher.job.request import Request
from tests.support.checkpoints import written
from tests.support.cluster.cluster_site import BUNDLED, Cluster
from tests.support.plans import cluster_plan


class Resumed(Cluster):
    """A job `first` that ran on the nodes, and whose checkpoints are wherever a test has put them."""

    def __init__(self, top: Path) -> None:
        super().__init__(top)
        self.first = JobFolder(path=top / "runs" / "first")
        self.begin()

    def begin(self, *, script: str | None = None) -> None:
        shutil.rmtree(self.first.path, ignore_errors=True)
        plan = replace(cluster_plan(2, name="first"), script=script)
        create(self.first, plan)
        for name in self.remotes:
            (self.checkpoints(name)).mkdir(parents=True, exist_ok=True)
            (self.checkpoints(name).parents[1] / "node").write_text(name)
            (self.checkpoints(name).parents[1] / "plan.json").write_text(json.dumps(plan.as_json()))

    def checkpoints(self, node: str, job: str = "first") -> Path:
        return self.at(node).with_name(job) / "run/checkpoints"

    def earlier(self, name: str = "first") -> Earlier:
        return earlier(self.first.path.parent, name)

    def newest(self, name: str = "first") -> Checkpoint:
        return self.site().newest(self.earlier(name))

    def resume(self, request: Request = BUNDLED, name: str = "first", site: ClusterSite | None = None) -> Checkpoint:
        """Place a job that continues from the first; return what it continues from."""
        site = site or self.site()
        found = site.newest(self.earlier(name))
        plan = site.plan(self.folder, request, resumes=True)
        create(self.folder, plan, fill=lambda folder: None if found.node else inherit(found, folder, linked=True))
        for remote in self.remotes.values():
            remote.verbs.clear()
        site.place(plan, self.folder, request)
        return found

    def got(self) -> list[dict[str, str]]:
        """What each node has in the new job's folder of checkpoints."""
        return [tree(self.checkpoints(name, "job")) for name in self.remotes]


def tree(folder: Path) -> dict[str, str]:
    """The content of files, the targets of links, and empty folders, by path."""
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else "folder"
        if path.is_dir()
        else path.read_text()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file() or not any(path.iterdir())
    }


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An `ssh` between the nodes: it runs its last word here; a test may replace it."""
    path = tmp_path / "bin" / "ssh"
    path.parent.mkdir()
    path.write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    path.chmod(0o755)
    (path.parent / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
    return path


@pytest.fixture
def cluster(tmp_path: Path, ssh: Path) -> Resumed:
    return Resumed(tmp_path)


STEP_200 = ["step-00000200.json", "step-00000200.pt"]


def test_the_nodes_newer_checkpoint_is_taken_and_goes_from_node_to_node(cluster: Resumed) -> None:
    written(cluster.checkpoints("node1"), 100, 200)
    written(cluster.first.checkpoints, 100)
    found = cluster.resume()
    assert (found.node, found.step) == ("node1", 200)
    assert found.notes == ("continues from job first: step 200 on node1",)
    one, other = cluster.got()
    assert sorted(one) == STEP_200 and one == other, "that one, and none that it won't read"
    assert one["step-00000200.pt"] == "of step 200"
    verbs = ["prepare", "fetch", "adopt"]
    assert [remote.verbs for remote in cluster.remotes.values()] == [verbs, verbs], "nothing is sent from here"
    assert list(cluster.folder.checkpoints.iterdir()) == []
    for name in cluster.remotes:
        assert not (cluster.at(name) / "inherited").exists()
        for path in cluster.checkpoints(name, "job").iterdir():
            assert path.stat().st_mode & 0o777 == 0o600
    assert (cluster.checkpoints("node1") / "step-00000200.pt").exists(), "the earlier job keeps its own"


def test_a_copy_here_that_is_newer_is_sent_once(cluster: Resumed) -> None:
    written(cluster.checkpoints("node1"), 100)
    written(cluster.first.checkpoints, 200)
    assert cluster.resume().node == ""
    assert [sorted(each) for each in cluster.got()] == [STEP_200, STEP_200]
    verbs = [remote.verbs for remote in cluster.remotes.values()]
    assert verbs == [["prepare", "want", "take", "adopt"], ["prepare", "fetch", "adopt"]]
    assert sorted(path.name for path in cluster.folder.checkpoints.iterdir()) == STEP_200


def test_a_damaged_one_there_gives_way_to_a_whole_one_here_or_there(cluster: Resumed) -> None:
    _, newest = written(cluster.checkpoints("node1"), 100, 200)
    newest.write_text("damaged....")
    found = cluster.newest()
    assert (found.node, found.step) == ("node1", 100)
    damaged = "checkpoint step-00000200 is damaged (its SHA-256 is not the manifest's), on node1"
    assert found.notes == (damaged, "continues from job first: step 100 on node1")
    written(cluster.first.checkpoints, 200)
    found = cluster.newest()
    assert (found.node, found.step, found.notes[0]) == ("", 200, damaged)


def test_nothing_valid_anywhere_is_an_error_that_says_what_was_seen(cluster: Resumed) -> None:
    (only,) = written(cluster.checkpoints("node1"), 100)
    only.unlink()
    with pytest.raises(
        RingmasterError, match=r"no valid checkpoint .*step-00000100 is without its content.*node1"
    ) as raised:
        cluster.newest()
    assert raised.value.exit_code == ExitCode.CLUSTER


def test_a_scripts_files_travel_as_a_whole(cluster: Resumed, tmp_path: Path) -> None:
    script = tmp_path / "theirs" / "train.py"
    script.parent.mkdir()
    script.write_text("print()\n")
    cluster.begin(script=str(script))
    for folder, text in ((cluster.checkpoints("node1"), "new"), (cluster.first.checkpoints, "old")):
        (folder / "deep").mkdir()
        (folder / "deep/.metadata").write_text(text)
        (folder / "last").symlink_to("deep")
        (folder / "gone").symlink_to("nowhere")
        (folder / ".fetching-1").write_text("half")
        (folder / "none").mkdir()
    found = cluster.resume(Request(program=user_script(script, ())))
    assert str(found) == "its checkpoints on node1"
    all_of_it = {"deep/.metadata": "new", "last": "deep", "gone": "nowhere", "none": "folder"}
    assert cluster.got() == [all_of_it, all_of_it]


def test_a_job_that_still_runs_is_not_continued(cluster: Resumed) -> None:
    written(cluster.checkpoints("node1"), 100)
    cluster.remotes["node1"].fake.put("first")
    with pytest.raises(RingmasterError, match="job first still runs; make stop NAME=first ends it, ") as raised:
        cluster.newest()
    assert raised.value.exit_code == ExitCode.NOT_STARTED


def test_a_job_that_ended_and_was_not_fetched_is_not_closed(cluster: Resumed) -> None:
    written(cluster.checkpoints("node1"), 100)
    cluster.remotes["node1"].fake.put("first", "exited")
    before = tree(cluster.at("node1").with_name("first"))
    assert cluster.resume().step == 100
    assert tree(cluster.at("node1").with_name("first")) == before
    assert cluster.remotes["node1"].fake.containers_of == ["first"]


def test_the_earlier_jobs_folder_is_not_cleared_away_for_the_new_one(cluster: Resumed) -> None:
    written(cluster.checkpoints("node1"), 100)
    for number in range(12):
        folder = cluster.at("node1").with_name(f"younger{number}")
        folder.mkdir()
        (folder / "collected").touch()
    (cluster.at("node1").with_name("first") / "collected").touch()
    cluster.resume()
    assert cluster.checkpoints("node1").exists()


def test_a_folder_that_its_node_has_cleared_away_leaves_the_copy_here(cluster: Resumed) -> None:
    written(cluster.first.checkpoints, 100)
    shutil.rmtree(cluster.at("node1").with_name("first"))
    found = cluster.newest()
    assert (found.node, found.step) == ("", 100)
    assert found.notes[0] == "node1 no longer has the folder of job first, so the copy here counts"


def test_another_job_of_the_same_name_is_not_continued(cluster: Resumed) -> None:
    written(cluster.checkpoints("node1"), 100)
    path = cluster.at("node1").with_name("first") / "plan.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "port": 1}))
    with pytest.raises(RingmasterError, match="runs/first is of another job than the one of this name on node1"):
        cluster.newest()


def out_of_reach(cluster: Resumed) -> None:
    cluster.remotes["node1"].alive = False


def not_in_the_inventory(cluster: Resumed) -> None:
    host = cluster.remotes.pop("node1").host
    assert host.name == "node1"


@pytest.mark.parametrize(("how", "why"), [(out_of_reach, "lost"), (not_in_the_inventory, "not in the inventory")])
def test_a_first_node_that_can_not_be_asked_refuses_and_names_the_ways_out(
    cluster: Resumed, how: Any, why: str
) -> None:
    written(cluster.checkpoints("node1"), 200)
    written(cluster.first.checkpoints, 100)
    how(cluster)
    with pytest.raises(
        RingmasterError, match=rf"{why}.*: bring it back, or RESUME=runs/first continues .*step 100"
    ) as raised:
        cluster.newest()
    assert raised.value.exit_code == ExitCode.NOT_STARTED


def test_whoever_names_the_folder_gets_the_copy_in_it_and_no_node_is_asked(cluster: Resumed) -> None:
    written(cluster.first.checkpoints, 100)
    not_in_the_inventory(cluster)
    assert cluster.newest(str(cluster.first.path)).step == 100


def elsewhere(cluster: Resumed, monkeypatch: pytest.MonkeyPatch, *, reached: bool = True) -> ClusterSite:
    """The new job is to run on node2 alone: LIMIT leaves out node1, where the first one's checkpoints are."""
    left_out = cluster.remotes.pop("node1")

    def open_all(hosts: Sequence[Host], pins: Path) -> tuple[dict[str, Any], dict[str, Row]]:
        assert [host.name for host in hosts] == ["node1"]
        left_out.alive = True
        row = Row(name="node1", address="", state="unreachable", why="no answer")
        return ({"node1": left_out}, {}) if reached else ({}, {"node1": row})

    monkeypatch.setattr(cluster_site, "open_all", open_all)
    hosts = [remote.host for remote in cluster.remotes.values()]
    everyone = (left_out.host, *hosts)
    site = cluster.site()
    site._everyone = lambda: everyone
    return site


def test_nodes_that_limit_leaves_out_are_asked_all_the_same(cluster: Resumed, monkeypatch: pytest.MonkeyPatch) -> None:
    written(cluster.checkpoints("node1"), 200)
    site = elsewhere(cluster, monkeypatch)
    assert cluster.resume(site=site).node == "node1"
    assert [sorted(each) for each in cluster.got()] == [STEP_200]
    assert cluster.remotes["node2"].verbs == ["prepare", "fetch", "adopt"]


def test_a_node_that_limit_leaves_out_and_does_not_answer_is_not_guessed_at(
    cluster: Resumed, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = elsewhere(cluster, monkeypatch, reached=False)
    with pytest.raises(RingmasterError, match=r"node1 has its checkpoints and can't be asked \(no answer\)"):
        site.newest(cluster.earlier())


def test_where_nodes_do_not_reach_each_other_it_is_brought_here_once_and_sent(cluster: Resumed, ssh: Path) -> None:
    ssh.write_text("#!/bin/sh\necho 'Host key verification failed.' >&2\nexit 255\n")
    written(cluster.checkpoints("node1"), 200)
    cluster.resume()
    assert [sorted(each) for each in cluster.got()] == [STEP_200, STEP_200]
    assert cluster.remotes["node1"].verbs == ["prepare", "fetch", "adopt"], "it needs no line to itself"
    assert cluster.remotes["node2"].verbs == ["prepare", "fetch", "want", "take", "adopt"]
    why = "node2: can't fetch the checkpoint from another node (Host key verification failed.), so it is sent there too"
    assert why in cluster.printed
    assert sorted(path.name for path in cluster.folder.checkpoints.iterdir()) == STEP_200


def test_what_can_not_be_brought_leaves_no_folder_anywhere(cluster: Resumed, monkeypatch: pytest.MonkeyPatch) -> None:
    written(cluster.checkpoints("node1"), 200)

    def vanishes() -> None:
        shutil.rmtree(cluster.checkpoints("node1"))

    cluster.remotes["node1"].after["prepare"] = vanishes
    with pytest.raises(RingmasterError):
        cluster.resume()
    assert cluster.jobs() == [["first"], ["first"]]
