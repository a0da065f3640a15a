"""Which of an earlier job's checkpoints a new one continues from, and how it gets the copy here."""

from pathlib import Path

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.job import checkpoint
from launcher.job.checkpoint import Checkpoint, choose
from launcher.job.folder import Earlier, JobFolder, create, earlier
from launcher.on_node import checkpoints
from launcher.on_node.checkpoints import Found
from tests.support.checkpoints import written
from tests.support.plans import cluster_plan


def made(runs: Path, *, script: bool = False) -> Earlier:
    folder = JobFolder(path=runs / "job")
    create(folder, cluster_plan(2, script=script))
    return earlier(runs, "job")


def of(node: str, *, step: int | None = None, changed: float = 0.0) -> Checkpoint:
    return Checkpoint(job="job", node=node, folder="/x", entries=(), step=step, changed=changed)


@pytest.mark.parametrize(
    ("there", "here", "wins"),
    [
        (of("node1", step=200), of("", step=100), "node1"),
        (of("node1", step=100), of("", step=100, changed=9.0), "node1"),
        (of("node1", step=100, changed=9.0), of("", step=200), ""),
        (of("node1", changed=10.5), of("", changed=10.0), "node1"),
        (of("node1", changed=10.0), of("", changed=11.0), ""),
        (None, of("", step=1), ""),
        (of("node1", step=1), None, "node1"),
    ],
)
def test_the_newer_one_is_chosen_and_of_two_alike_the_nodes(
    there: Checkpoint | None, here: Checkpoint | None, wins: str
) -> None:
    chosen = choose(there, here)
    assert chosen and chosen.node == wins


def test_where_there_is_none_none_is_chosen() -> None:
    assert choose(None, None) is None


def test_of_the_trainers_checkpoints_here_one_is_inherited_as_a_link(tmp_path: Path) -> None:
    job = made(tmp_path)
    written(job.folder.checkpoints, 1, 2)
    (job.folder.checkpoints / "step-00000003.pt.bad").write_bytes(b"x")
    (job.folder.checkpoints / ".fetching-1").write_bytes(b"half")
    found = checkpoint.newest_here(job)
    assert found.notes == ("continues from job job: step 2 in the copy here",)
    target = JobFolder(path=tmp_path / "two")
    create(target, cluster_plan(2), fill=lambda folder: checkpoint.inherit(found, folder, linked=True))
    assert sorted(path.name for path in target.checkpoints.iterdir()) == ["step-00000002.json", "step-00000002.pt"]
    assert (target.checkpoints / "step-00000002.pt").samefile(job.folder.checkpoints / "step-00000002.pt")


def test_a_script_that_writes_in_place_does_not_reach_the_earlier_job(tmp_path: Path) -> None:
    job = made(tmp_path, script=True)
    (job.folder.checkpoints / "deep").mkdir()
    (job.folder.checkpoints / "deep/last.pt").write_bytes(b"1")
    (job.folder.checkpoints / "last").symlink_to("deep/last.pt")
    (job.folder.checkpoints / "gone").symlink_to("nowhere")
    (job.folder.checkpoints / "none").mkdir()
    target = JobFolder(path=tmp_path / "two")
    create(target, cluster_plan(2))
    checkpoint.inherit(checkpoint.newest_here(job), target, linked=False)
    assert (target.checkpoints / "last").readlink() == Path("deep/last.pt")
    assert (target.checkpoints / "gone").readlink() == Path("nowhere")
    assert (target.checkpoints / "none").is_dir()
    (target.checkpoints / "last").write_bytes(b"2")
    assert (job.folder.checkpoints / "deep/last.pt").read_bytes() == b"1"


def test_nothing_to_continue_from_is_never_a_start_from_scratch(tmp_path: Path) -> None:
    job = made(tmp_path)
    (bad,) = written(job.folder.checkpoints, 5)
    bad.write_bytes(b"x")
    (job.folder.checkpoints / "step-00000002.pt.bad").write_bytes(b"2")
    with pytest.raises(
        RingmasterError, match=r"RESUME=job: no valid checkpoint \(.*step-00000005 is 1 bytes"
    ) as raised:
        checkpoint.newest_here(job)
    assert raised.value.exit_code == ExitCode.CLUSTER


def test_what_can_not_be_read_here_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(folder: str) -> None:
        raise OSError(5, "Input/output error", "/x")

    monkeypatch.setitem(checkpoints.VERBS, "newest", fails)
    with pytest.raises(RingmasterError, match=r"RESUME=job: /x: can't be read \(Input/output error\)"):
        checkpoint.newest_here(made(tmp_path))


def test_a_node_that_can_not_be_asked_leaves_a_way_to_insist(tmp_path: Path) -> None:
    job = made(tmp_path)
    error = checkpoint.cant_be_asked(job, "no route to host")
    assert str(error) == (
        "RESUME=job: node1 has its checkpoints and can't be asked (no route to host): bring it back; no "
        "checkpoint of it is here"
    )
    written(job.folder.checkpoints, 42)
    error = checkpoint.cant_be_asked(job, "no route to host")
    assert "bring it back, or RESUME=runs/job continues from the copy here, which may be older (step 42, of 2" in str(
        error
    )
    assert error.exit_code == ExitCode.NOT_STARTED


def test_a_hostile_nodes_files_stay_in_the_folder(tmp_path: Path) -> None:
    found = Found([("../x", 0o644, 1, "0" * 64, "")], 1, 0.0, [], "/x")
    with pytest.raises(ValueError, match=r"'\.\./x' in a manifest"):
        checkpoint.checkpoint_of(made(tmp_path), found, node="node1")
