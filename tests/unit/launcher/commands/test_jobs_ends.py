"""What `make logs`, `stop` and `status` say of a job's end, whatever is left to tell of it."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.base.errors import ExitCode
from launcher.commands import jobs
from launcher.commands.jobs import LogsOptions, Options
from launcher.follow.follower import Follower
from launcher.follow.incidents import TOLD_TO_GO, Incident
from launcher.follow.outcome import Outcome
from launcher.follow.summary import finish
from tests.support.cluster.cluster_job import FAILED, STOPPED, SUCCEEDED, UNKNOWN
from tests.support.job_commands import Cluster, asked, words


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return asked(tmp_path, monkeypatch)


class TestAJobThatWasClosed:
    @pytest.mark.parametrize("ended", [SUCCEEDED, FAILED, STOPPED, UNKNOWN])
    def test_of_a_job_that_was_closed_the_code_is_the_recorded_one(self, cluster: Cluster, ended: Outcome) -> None:
        for name in cluster.dirs:
            cluster.close(name, ended)
        assert jobs.logs(LogsOptions()) == ended.exit_code
        assert cluster.summary()["state"] == ended.state

    @pytest.mark.parametrize("content", ["", "[1]", "{}", '{"state": "succeeded", "exit_code": 77, "failure": null}'])
    def test_of_one_without_a_record_that_can_be_read_nobody_knows(
        self, cluster: Cluster, content: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for name, path in cluster.dirs.items():
            cluster.close(name, SUCCEEDED)
            (path / "job/summary.json").write_text(content)
        assert jobs.logs(LogsOptions()) == ExitCode.CLUSTER
        assert "nobody knows how the job ended (nobody has recorded it)" in words(capsys)

    def test_what_is_known_here_is_not_forgotten(self, cluster: Cluster) -> None:
        """A launcher here saw its end; later another one found nothing any more."""
        finish(cluster.folder, cluster.plan, FAILED, 0.0, print, ended_at=60.0)
        for name in cluster.dirs:
            cluster.close(name, UNKNOWN)
        assert jobs.logs(LogsOptions()) == ExitCode.FAILED
        assert cluster.summary()["state"] == "failed"

    def test_what_the_nodes_know_better_comes_home(self, cluster: Cluster) -> None:
        finish(cluster.folder, cluster.plan, UNKNOWN, 0.0, print, ended_at=None)
        for name in cluster.dirs:
            cluster.close(name, FAILED)
        assert jobs.logs(LogsOptions()) == ExitCode.FAILED
        assert cluster.summary()["state"] == "failed" and ">failed</span>" in cluster.folder.report.read_text()

    def test_what_befell_its_nodes_is_in_the_report_made_here(self, cluster: Cluster) -> None:
        told = Incident(at=30.0, node="node2", rank=None, kind=TOLD_TO_GO, action="stopped", lost_s=None)
        cluster.write("node1", "metrics.jsonl", '{"kind": "step", "step": 1}\n')
        for name in ("node1", "node2"):
            cluster.close(name, replace(STOPPED, incidents=(told,)))
        assert [jobs.logs(LogsOptions()) for _ in range(2)] == [ExitCode.TERMINATED] * 2
        assert (cluster.here("metrics.jsonl") or "").count("node2 was told to go") == 1
        assert "node2 was told to go" in cluster.folder.report.read_text()


class TestAJobWhoseContainersAreGone:
    """Somebody has removed them: `docker container prune`."""

    @pytest.fixture(autouse=True)
    def pruned(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        cluster.without_containers()
        for path in cluster.dirs.values():
            (path / "job/started").touch()
        monkeypatch.setattr(jobs, "Follower", Follower)

    def test_nobody_knows_how_it_ended(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        assert jobs.status(Options()) == ExitCode.SUCCEEDED
        assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["job", "unknown"]
        cluster.write("node1", "checkpoints/step-1.pt", "one")
        assert jobs.logs(LogsOptions()) == ExitCode.CLUSTER
        told = cluster.summary()
        assert (told["state"], told["exit_code"], told["wall_s"]) == ("unknown", 4, None)
        assert told["failure"]["reason"] == "node1, node2: container gone"
        assert cluster.here("checkpoints/step-1.pt") == "one"
        assert "nobody knows how the job ended (node1, node2: container gone)" in words(capsys)

    def test_it_stays_unknown(self, cluster: Cluster) -> None:
        assert [jobs.logs(LogsOptions()) for _ in range(2)] == [ExitCode.CLUSTER] * 2
        assert jobs.stop(Options(name="job")) == ExitCode.CLUSTER
        assert cluster.summary()["state"] == "unknown"

    def test_stop_does_not_say_that_it_stopped_it(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        assert jobs.stop(Options(name="job")) == ExitCode.CLUSTER
        shown = words(capsys)
        assert shown.count("no container, no process, port free") == 2 and "nobody knows how" in shown
        assert cluster.summary()["state"] == "unknown"

    def test_a_node_that_ended_well_does_not_speak_for_the_other(self, cluster: Cluster, tmp_path: Path) -> None:
        cluster.ended("node1", 0)
        assert jobs.logs(LogsOptions()) == ExitCode.CLUSTER
        assert cluster.summary()["failure"]["reason"] == "node2: container gone; node1 ended with 0"
        assert cluster.containers() == [[], []], "what it told is recorded"

    def test_a_failure_that_is_known_is_the_answer(self, cluster: Cluster) -> None:
        cluster.ended("node1", 3)
        assert jobs.logs(LogsOptions()) == ExitCode.CLUSTER
        assert (cluster.summary()["state"], cluster.summary()["failure"]["node"]) == ("failed", "node1")

    @pytest.mark.parametrize("ended", [SUCCEEDED, FAILED, STOPPED])
    def test_what_somebody_has_recorded_is_the_answer(self, cluster: Cluster, ended: Outcome) -> None:
        cluster.close("node2", ended)
        assert jobs.logs(LogsOptions()) == ended.exit_code
        assert cluster.summary()["state"] == ended.state

    @pytest.mark.parametrize("ended", [SUCCEEDED, FAILED, STOPPED])
    def test_or_what_is_recorded_here(self, cluster: Cluster, ended: Outcome) -> None:
        finish(cluster.folder, cluster.plan, ended, 0.0, print, ended_at=60.0)
        assert jobs.logs(LogsOptions()) == ended.exit_code
        assert cluster.summary()["state"] == ended.state

    def test_a_node_out_of_reach_is_not_one_that_ended_well(self, cluster: Cluster) -> None:
        cluster.ended("node1", 0)
        cluster.ended("node2", 1)
        away = cluster.remotes.pop("node2")
        assert jobs.logs(LogsOptions()) == ExitCode.CLUSTER
        assert cluster.summary()["failure"]["reason"] == "node2: out of reach; node1 ended with 0"
        cluster.remotes["node2"] = away
        assert jobs.logs(LogsOptions()) == ExitCode.CLUSTER
        assert (cluster.summary()["state"], cluster.summary()["failure"]["node"]) == ("failed", "node2")
        told = [json.loads((path / "job/summary.json").read_text())["state"] for path in cluster.dirs.values()]
        assert told == ["failed", "failed"] and cluster.containers() == [[], []]


class TestAFailureStaysOne:
    def test_that_could_not_be_recorded_on_a_node(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        cluster.supervision.ends = FAILED
        for path in cluster.dirs.values():  # the disks are full
            (path / "job/.closing").touch()
        assert jobs.logs(LogsOptions()) == ExitCode.FAILED
        assert cluster.containers() == [["job"], ["job"]]
        assert "could not be recorded there" in words(capsys)
        for path in cluster.dirs.values():
            (path / "job/.closing").unlink()
        cluster.folder.summary.unlink()
        assert jobs.logs(LogsOptions()) == ExitCode.FAILED
        assert cluster.containers() == [[], []] and "collected" in cluster.left("node2")

    def test_that_could_not_be_recorded_by_who_wants_nothing_left(
        self, cluster: Cluster, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster.supervision.ends = FAILED
        (cluster.dirs["node2"] / "job/.closing").touch()
        assert jobs.stop(Options(name="job")) == ExitCode.CLUSTER
        assert cluster.containers() == [[], ["job"]]
        shown = words(capsys)
        assert "node1: no container, no process, port free" in shown
        assert "node2: STILL THERE: container node2-job-0 (ended; it stays until its end can be recorded)" in shown
        (cluster.dirs["node2"] / "job/.closing").unlink()
        assert jobs.stop(Options(name="job")) == ExitCode.SUCCEEDED
        assert cluster.containers() == [[], []] and cluster.summary()["state"] == "failed"

    def test_unless_there_is_no_folder_to_record_it_in(self, cluster: Cluster) -> None:
        cluster.supervision.ends = FAILED
        shutil.rmtree(cluster.dirs["node2"] / "job")
        assert jobs.stop(Options(name="job")) == ExitCode.SUCCEEDED
        assert cluster.containers() == [[], []] and cluster.summary()["state"] == "failed"

    def test_that_came_before_the_stop(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        cluster.running()
        cluster.remotes["node2"].fake.inspected.clear()
        cluster.remotes["node2"].fake.put("job", "exited", code=1)
        cluster.supervision.ends = FAILED
        assert jobs.stop(Options()) == ExitCode.SUCCEEDED
        assert cluster.supervision.asked == [(False, ())], "it is followed, which ends the rest"
        assert "job job has failed on node2; ending the rest of it" in words(capsys)
        assert cluster.summary()["state"] == "failed" and "stopped" not in cluster.left("node1")

    def test_of_a_job_that_runs_on_somewhere(self, cluster: Cluster) -> None:
        """Who followed it lost node2, which is back."""
        cluster.running()
        cluster.close("node1", FAILED)
        assert jobs.stop(Options()) == ExitCode.SUCCEEDED
        assert cluster.summary()["state"] == "failed"

    def test_of_which_somebody_lets_go_that_runs_on_somewhere(self, cluster: Cluster) -> None:
        cluster.running()
        cluster.close("node1", FAILED)
        cluster.supervision.ends = Outcome(state="detached", exit_code=ExitCode.INTERRUPTED)
        assert jobs.logs(LogsOptions()) == ExitCode.INTERRUPTED
        assert cluster.containers() == [[], ["job"]] and "collected" not in cluster.left("node2")

    def test_but_not_of_a_job_that_only_seemed_lost_and_ended_well(self, cluster: Cluster) -> None:
        """No other node could tell whether it still ran: it did."""
        finish(cluster.folder, cluster.plan, FAILED, 0.0, print, ended_at=60.0)
        cluster.running()
        assert jobs.logs(LogsOptions()) == ExitCode.SUCCEEDED
        assert cluster.summary()["state"] == "succeeded"
