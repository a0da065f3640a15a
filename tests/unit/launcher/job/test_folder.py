"""A job's folder: its name, what it continues from."""

from pathlib import Path

import pytest

from launcher.base.errors import ExitCode, RingmasterError
from launcher.job import folder as job
from tests.support.plans import facts, plan_for, request


@pytest.mark.parametrize("name", ["a/b", "..", ".x", "-x", "latest", "x" * 101, "a\nb", " ", "_x"])
def test_bad_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(RingmasterError, match="NAME"):
        job.choose(tmp_path, name)


def test_names_may_be_in_any_language_and_are_taken_once(tmp_path: Path) -> None:
    folder = job.choose(tmp_path, "erster-Versuch_训练.1")
    job.create(folder, plan_for(facts(1)))
    assert (tmp_path / "latest").readlink() == Path(folder.name)
    assert folder.path.stat().st_mode & 0o777 == 0o700
    with pytest.raises(RingmasterError, match="there is a job of this name"):
        job.choose(tmp_path, folder.name)


def test_made_names_do_not_collide_and_latest_follows(tmp_path: Path) -> None:
    names = []
    for _ in range(3):
        folder = job.choose(tmp_path, "")
        job.create(folder, plan_for(facts(1)))
        names.append(folder.name)
    assert len(set(names)) == 3
    assert (tmp_path / "latest").resolve().name == names[-1]


def test_the_second_of_two_launchers_is_refused(tmp_path: Path) -> None:
    folder = job.choose(tmp_path, "one")
    job.create(folder, plan_for(facts(1)))
    with pytest.raises(job.NameTakenError):
        job.create(folder, plan_for(facts(1)))


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file is in the way")
    with pytest.raises(RingmasterError, match="is a file"):
        job.create(job.choose(tmp_path / "runs", ""), plan_for(facts(1)))


class TestResume:
    def earlier(self, runs: Path) -> job.JobFolder:
        folder = job.choose(runs, "one")
        job.create(folder, plan_for(facts(1), request("--lr", "ü", data=Path("/d"))))
        return folder

    def test_script_arguments_and_checkpoints_are_inherited(self, tmp_path: Path) -> None:
        first = self.earlier(tmp_path)
        (first.checkpoints / "step-1.pt").write_bytes(b"1")
        (first.checkpoints / "step-2.pt.bad").write_bytes(b"2")
        earlier = job.earlier(tmp_path, "latest")
        assert (earlier.script, earlier.arguments, earlier.data) == (None, ("--lr", "ü"), "/d")
        second = job.choose(tmp_path, "two")
        job.create(second, plan_for(facts(1)))
        job.inherit_checkpoints(earlier.folder, second, linked=True)
        assert [path.name for path in second.checkpoints.iterdir()] == ["step-1.pt"]
        assert (second.checkpoints / "step-1.pt").samefile(first.checkpoints / "step-1.pt")

    def test_a_script_that_writes_in_place_does_not_reach_the_earlier_job(self, tmp_path: Path) -> None:
        first = self.earlier(tmp_path)
        (first.checkpoints / "last.pt").write_bytes(b"1")
        second = job.choose(tmp_path, "two")
        job.create(second, plan_for(facts(1)))
        job.inherit_checkpoints(first, second, linked=False)
        (second.checkpoints / "last.pt").write_bytes(b"2")
        assert (first.checkpoints / "last.pt").read_bytes() == b"1"

    def test_a_link_that_points_nowhere_is_taken_along(self, tmp_path: Path) -> None:
        first = self.earlier(tmp_path)
        (first.checkpoints / "last.pt").symlink_to("gone.pt")
        second = job.choose(tmp_path, "two")
        job.create(second, plan_for(facts(1)), inherits=first)
        assert (second.checkpoints / "last.pt").readlink() == Path("gone.pt")

    def test_a_failed_copy_leaves_no_half_job(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first = self.earlier(tmp_path)

        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(job.shutil, "copytree", full)
        second = job.choose(tmp_path, "two")
        with pytest.raises(RingmasterError, match="No space left") as raised:
            job.create(second, plan_for(facts(1)), inherits=first)
        assert raised.value.exit_code == ExitCode.NOT_STARTED
        assert not second.path.exists()
        assert (tmp_path / "latest").readlink() == Path("one")

    def test_no_such_job(self, tmp_path: Path) -> None:
        for name in ("none", "../x", "latest"):
            with pytest.raises(RingmasterError, match=f"no such job here; .*make logs NAME={name} fetches") as raised:
                job.earlier(tmp_path, name)
            assert raised.value.exit_code == ExitCode.USAGE

    def test_nothing_to_continue_from_is_never_a_start_from_scratch(self, tmp_path: Path) -> None:
        (self.earlier(tmp_path).checkpoints / "step-2.pt.bad").write_bytes(b"2")
        with pytest.raises(RingmasterError, match=r"no valid checkpoint; .*make logs NAME=one fetches them") as raised:
            job.earlier(tmp_path, "one")
        assert raised.value.exit_code == ExitCode.CLUSTER


def test_a_job_that_never_started_leaves_no_trace(tmp_path: Path) -> None:
    for name in ("first", "second"):
        job.create(job.choose(tmp_path, name), plan_for(facts(1)))
    job.discard(job.JobFolder(path=tmp_path / "second"))
    assert (tmp_path / "latest").readlink() == Path("first")
    job.choose(tmp_path, "second")
    job.discard(job.JobFolder(path=tmp_path / "first"))
    assert list(tmp_path.iterdir()) == []


def test_to_discard_an_older_job_leaves_latest_alone(tmp_path: Path) -> None:
    for name in ("first", "second"):
        job.create(job.choose(tmp_path, name), plan_for(facts(1)))
    job.discard(job.JobFolder(path=tmp_path / "first"))
    assert (tmp_path / "latest").readlink() == Path("second")


def test_every_name_that_we_give_in_a_jobs_folder_is_ours(tmp_path: Path) -> None:
    """What the job itself writes under such a name is laid aside (`launcher.cluster.transfer.download`)."""
    folder = job.JobFolder(path=tmp_path / "job")
    job.create(folder, plan_for(facts(1)))
    paths = (folder.plan, folder.summary, folder.report, folder.logs)
    assert {path.name for path in paths} | {"nodes"} == job.OURS
    assert {path.name for path in folder.path.iterdir()} <= job.OURS | {"checkpoints"}
    assert not {folder.metrics.name, folder.checkpoints.name} & job.OURS, "these are the job's to write"
