"""A job's folder: its name, what it continues from."""

import json
from pathlib import Path

import pytest

from launcher.base import caller
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT
from launcher.job import folder as job
from launcher.job.program import Program
from launcher.job.request import Request
from tests.support.plans import cluster_plan, facts, plan_for, request


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


def test_what_cannot_be_filled_leaves_no_half_job(tmp_path: Path) -> None:
    def full(folder: job.JobFolder) -> None:
        assert folder.checkpoints.is_dir()
        raise OSError(28, "No space left on device")

    job.create(job.choose(tmp_path, "one"), plan_for(facts(1)))
    second = job.choose(tmp_path, "two")
    with pytest.raises(RingmasterError, match="No space left") as raised:
        job.create(second, plan_for(facts(1)), fill=full)
    assert raised.value.exit_code == ExitCode.NOT_STARTED
    assert not second.path.exists()
    assert (tmp_path / "latest").readlink() == Path("one")


class TestResume:
    def test_script_arguments_and_data_are_those_of_the_earlier_job(self, tmp_path: Path) -> None:
        plan = plan_for(facts(1), request("--lr", "ü", data=Path("/d")))
        job.create(job.choose(tmp_path, "one"), plan)
        earlier = job.earlier(tmp_path, "latest")
        assert (earlier.script, earlier.arguments, earlier.data) == (None, ("--lr", "ü"), "/d")
        assert (earlier.folder.name, earlier.head) == ("one", ""), "its checkpoints are here"

    def test_of_a_job_on_a_cluster_the_first_node_has_the_checkpoints_unless_the_copy_is_named(
        self, tmp_path: Path
    ) -> None:
        job.create(job.choose(tmp_path, "one"), cluster_plan(2))
        earlier = job.earlier(tmp_path, "one")
        assert (earlier.head, earlier.address) == ("node1", "10.0.0.1")
        named = job.earlier(tmp_path, str(tmp_path / "one"))
        assert (named.folder.name, named.head) == ("one", "")

    def test_no_such_job(self, tmp_path: Path) -> None:
        for name in ("none", "latest"):
            with pytest.raises(RingmasterError, match=f"no such job here; .*make logs NAME={name} fetches") as raised:
                job.earlier(tmp_path, name)
            assert raised.value.exit_code == ExitCode.USAGE

    def test_no_such_folder(self, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        for name in ("../x", str(tmp_path / "empty")):
            with pytest.raises(RingmasterError, match="no such folder of a job") as raised:
                job.earlier(tmp_path, name)
            assert raised.value.exit_code == ExitCode.USAGE

    @pytest.mark.parametrize("content", ["", "{}", '{"nodes": []}', "[]"])
    def test_a_plan_that_is_none(self, tmp_path: Path, content: str) -> None:
        job.create(job.choose(tmp_path, "one"), plan_for(facts(1)))
        (tmp_path / "one" / "plan.json").write_text(content)
        with pytest.raises(RingmasterError, match=r"RESUME=one: .*plan\.json can't be used"):
            job.earlier(tmp_path, "one")


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
    paths = (folder.plan, folder.job_file, folder.launcher, folder.summary, folder.report, folder.logs, folder.own)
    paths += (folder.replaced, folder.work_of("node1", head=True))
    assert {path.name for path in paths} | {"nodes"} == job.OURS
    assert {path.name for path in folder.path.iterdir()} <= job.OURS | {"checkpoints"}
    assert not {folder.metrics.name, folder.checkpoints.name} & job.OURS, "these are the job's to write"


def test_a_module_and_its_code_are_read_back_and_older_plans_have_none(tmp_path: Path) -> None:
    program = Program(arguments=(), root=tmp_path, module="pkg.train", importable=("",))
    folder = job.choose(tmp_path, "one")
    job.create(folder, plan_for(facts(1), Request(program=program)))
    found = job.earlier(tmp_path, "one")
    assert (found.script, found.module, found.code_root, found.bundled) == (None, "pkg.train", str(tmp_path), False)
    stored = json.loads(folder.plan.read_text())
    del stored["module"], stored["code_root"]
    folder.plan.write_text(json.dumps(stored))
    found = job.earlier(tmp_path, "one")
    assert (found.module, found.code_root, found.bundled) == (None, None, True)


def test_a_path_means_the_callers_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job.create(job.choose(tmp_path / "runs", "one"), plan_for(facts(1)))
    monkeypatch.setattr(caller, "folder", lambda: tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in ("runs/one", "~/runs/one", "./runs/latest"):
        assert job.earlier(tmp_path / "elsewhere", path).folder.path == tmp_path / "runs" / "one"
    with pytest.raises(RingmasterError, match=f"no such folder of a job in {tmp_path} .there is {ROOT / 'docs'}: "):
        job.earlier(tmp_path, "./docs")
