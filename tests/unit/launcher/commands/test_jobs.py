"""`make status`, `logs` and `stop` on nodes that are folders here; the engines are fakes."""

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from launcher.base.atomic_file import write_json
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.node_table import Row
from launcher.cluster import teardown
from launcher.commands import jobs
from launcher.commands.jobs import LogsOptions, Options
from launcher.follow.outcome import Outcome
from launcher.ssh.refusals import State
from tests.support.cluster.cluster_job import FAILED, STOPPED, SUCCEEDED
from tests.support.job_commands import Cluster, asked, words
from tests.support.plans import cluster_plan

LISTENS = "0: {address}:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1\n"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return asked(tmp_path, monkeypatch)


class TestStatus:
    def test_every_job_has_a_line(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        cluster.running()
        cluster.write("node1", "metrics.jsonl", '{"step": 7}\n')
        assert jobs.status(Options()) == ExitCode.SUCCEEDED
        head, row = capsys.readouterr().out.splitlines()
        assert head.split() == ["job", "state", "age", "step", "nodes"]
        assert row.split()[:2] == ["job", "running"] and row.split()[-3:] == ["7", "node1,", "node2"]

    def test_a_node_that_can_not_report_is_shown_beside_the_others_jobs(
        self, cluster: Cluster, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster.remotes["node2"].engine_fails = RingmasterError("node2: its Docker engine doesn't answer")
        assert jobs.status(Options()) == ExitCode.SUCCEEDED
        shown = words(capsys)
        assert "node2" in shown and "its Docker engine doesn't answer" in shown
        assert shown.endswith(" node1"), "the node that knows the job"
        assert not cluster.remotes["node2"].alive, "its connection is not kept"

    def test_what_a_node_says_of_its_engine_does_not_steer_the_terminal(
        self, cluster: Cluster, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster.remotes["node2"].engine_fails = RingmasterError("node2: \x1b[2J\x1b]0;all is well\x07")
        assert jobs.status(Options()) == ExitCode.SUCCEEDED
        assert r"\x1b[2J\x1b]0;all is well\x07" in capsys.readouterr().out

    def test_an_unknown_name(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        assert jobs.status(Options(name="other")) == ExitCode.SUCCEEDED
        assert words(capsys) == "no job of that name on node1, node2"


class TestAJobThatIsBeingPlaced:
    def test_logs_leaves_it_unchanged(self, cluster: Cluster) -> None:
        cluster.without_containers()
        before = [cluster.left(name) for name in cluster.dirs]
        with pytest.raises(RingmasterError, match=r"job job is being started; .*make stop NAME=job") as raised:
            jobs.logs(LogsOptions(name="job"))
        assert raised.value.exit_code == ExitCode.NOT_STARTED
        assert [cluster.left(name) for name in cluster.dirs] == before and "secrets" in before[0]
        assert not cluster.folder.summary.exists() and cluster.supervision.asked == []

    def test_so_does_logs_when_containers_are_created_and_not_started(self, cluster: Cluster) -> None:
        cluster.without_containers()
        cluster.remotes["node1"].fake.put("job", "created")
        with pytest.raises(RingmasterError, match="is being started"):
            jobs.logs(LogsOptions(name="job"))
        assert cluster.containers() == [["job"], []]

    def test_stop_removes_what_it_would_start_from(self, cluster: Cluster) -> None:
        cluster.without_containers()
        cluster.remotes["node1"].fake.put("job", "created")
        assert jobs.stop(Options(name="job")) == ExitCode.SUCCEEDED
        assert cluster.containers() == [[], []] and not {"secrets", "code/train.py"} & set(cluster.left("node1"))
        assert cluster.summary()["state"] == "stopped"


class TestAJobThatWasNeverStarted:
    def test_there_is_nothing_to_follow(self, cluster: Cluster) -> None:
        cluster.without_containers()
        cluster.age(3600)
        with pytest.raises(RingmasterError, match=r"was never started, .*make stop NAME=job cleans"):
            jobs.logs(LogsOptions())
        assert "secrets" in cluster.left("node1")

    def test_stop_cleans_up_after_it(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        cluster.without_containers()
        cluster.remotes["node1"].fake.put("job", "created")
        cluster.age(3600)
        assert jobs.stop(Options(name="job")) == ExitCode.SUCCEEDED
        assert "collected" in cluster.left("node1") and "secrets" not in cluster.left("node1")
        assert cluster.containers() == [[], []]
        assert cluster.summary()["state"] == "stopped", "it must not be reported as failed"
        assert "node1: no container, no process, port free" in words(capsys)


class TestLogs:
    def test_a_job_is_followed_and_its_results_are_fetched(self, cluster: Cluster) -> None:
        cluster.running()
        cluster.write("node2", "trace.json", "t")
        assert jobs.logs(LogsOptions()) == ExitCode.SUCCEEDED
        assert cluster.supervision.asked == [(True, ())]
        assert (cluster.here("nodes/node2/trace.json"), cluster.summary()["state"]) == ("t", "succeeded")
        assert "collected" in cluster.left("node2") and cluster.containers() == [[], []]

    def test_detaching_changes_nothing(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        cluster.running()
        cluster.supervision.ends = Outcome(state="detached", exit_code=ExitCode.INTERRUPTED)
        assert jobs.logs(LogsOptions()) == ExitCode.INTERRUPTED
        assert "collected" not in cluster.left("node1") and not cluster.folder.summary.exists()
        assert cluster.containers() == [["job"], ["job"]]
        assert "job job goes on; make logs follows it again" in words(capsys)

    def test_the_outcome_comes_from_a_node_where_the_job_was_closed(self, cluster: Cluster) -> None:
        """Another machine fetched node1 while node2 was out of reach, so only node2's container tells its end."""
        cluster.close("node1", SUCCEEDED)
        cluster.supervision.ends = FAILED
        assert jobs.logs(LogsOptions(name="job")) == ExitCode.SUCCEEDED
        assert cluster.summary()["state"] == "succeeded"
        assert json.loads((cluster.dirs["node1"] / "job/summary.json").read_text())["state"] == "succeeded"
        assert "collected" in cluster.left("node2")

    def test_a_job_that_has_ended_is_shown_again(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        for name in cluster.dirs:
            cluster.close(name, FAILED)
            (cluster.dirs[name] / "job/log").write_text(f"[0] hello from {name}\n")
        assert jobs.logs(LogsOptions()) == ExitCode.FAILED, "as it ended"
        shown = words(capsys)
        assert "hello from node1" in shown and "hello from node2" in shown
        assert "job job has ended: failed" in shown and cluster.folder.report.exists()
        assert cluster.supervision.asked == []

    def test_nodes_with_other_names_and_addresses_are_not_guessed(self, cluster: Cluster) -> None:
        cluster.rename("203.0.113.1")
        with pytest.raises(RingmasterError, match="other names and addresses than ours") as raised:
            jobs.logs(LogsOptions())
        assert raised.value.exit_code == ExitCode.CLUSTER
        assert not cluster.folder.summary.exists() and cluster.containers() == [["job"], ["job"]]

    def test_no_job_at_all(self, cluster: Cluster) -> None:
        for path in cluster.dirs.values():
            (path / "job/plan.json").unlink()
        cluster.without_containers()
        with pytest.raises(RingmasterError, match="no node knows of a job; make train starts one"):
            jobs.logs(LogsOptions())

    def test_another_job_of_the_same_name_here_is_not_touched(self, cluster: Cluster) -> None:
        cluster.running()
        write_json(cluster.folder.plan, cluster_plan(1, name="job").as_json())
        with pytest.raises(RingmasterError, match="runs/job belongs to another job of the same name"):
            jobs.logs(LogsOptions())
        assert not cluster.folder.summary.exists()


class TestStop:
    def test_a_job_is_marked_signalled_fetched_and_removed(
        self, cluster: Cluster, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster.running()
        cluster.supervision.ends = STOPPED
        cluster.write("node1", "checkpoints/step-1.pt", "one")
        assert jobs.stop(Options()) == ExitCode.SUCCEEDED
        assert cluster.supervision.asked == [(False, (signal.SIGTERM,))]
        assert (cluster.here("checkpoints/step-1.pt"), cluster.summary()["state"]) == ("one", "stopped")
        for name in cluster.dirs:
            assert {"stopped", "collected"} <= set(cluster.left(name))
        assert cluster.containers() == [[], []]
        shown = words(capsys)
        assert "stopping job job on node1, node2" in shown
        assert shown.count("no container, no process, port free") == 2

    def test_a_job_that_has_ended_is_not_reported_as_stopped(self, cluster: Cluster) -> None:
        cluster.supervision.ends = FAILED
        assert jobs.stop(Options(name="job")) == ExitCode.SUCCEEDED
        assert cluster.supervision.asked == [(False, ())]
        assert cluster.summary()["state"] == "failed" and "stopped" not in cluster.left("node1")

    def test_a_recorded_outcome_stays(self, cluster: Cluster) -> None:
        cluster.close("node2", SUCCEEDED)
        cluster.supervision.ends = FAILED
        assert jobs.stop(Options(name="job")) == ExitCode.SUCCEEDED
        assert cluster.summary()["state"] == "succeeded"

    def test_no_running_job(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        assert jobs.stop(Options()) == ExitCode.SUCCEEDED
        assert words(capsys) == "no job runs on node1, node2"
        assert cluster.containers() == [["job"], ["job"]]

    def test_no_outcome_is_invented_for_nodes_with_other_names(self, cluster: Cluster) -> None:
        cluster.rename("203.0.113.1")
        assert jobs.stop(Options(name="job")) == ExitCode.CLUSTER
        assert not cluster.folder.summary.exists(), "how it ended is not known"
        assert cluster.containers() == [[], []]

    def test_a_job_without_its_plan_is_stopped_too(self, cluster: Cluster) -> None:
        cluster.running()
        for path in cluster.dirs.values():
            (path / "job/plan.json").write_text("{")
        assert jobs.stop(Options()) == ExitCode.SUCCEEDED
        assert cluster.containers() == [[], []] and cluster.supervision.asked == []


class TestProof:
    @pytest.mark.parametrize(
        ("pids", "address", "said"),
        [
            ("4711\n", "", "process 4711"),
            ("\x1b[2J", "", r"process \x1b[2J"),
            ("", "0100007F", "port 29500"),
            ("", "0" * 32, "port 29500"),
        ],
    )
    def test_what_is_left_is_named(
        self, cluster: Cluster, capsys: pytest.CaptureFixture[str], pids: str, address: str, said: str
    ) -> None:
        cluster.running()
        cluster.remotes["node2"].pids = pids
        cluster.remotes["node2"].sockets = LISTENS.format(address=address, port=29500) if address else ""
        assert jobs.stop(Options()) == ExitCode.CLUSTER
        shown = words(capsys)
        assert f"node2: STILL THERE: {said}" in shown and "node1: no container, no process, port free" in shown

    def test_a_container_that_can_not_be_removed_is_named(self, cluster: Cluster) -> None:
        cluster.running()
        fake = cluster.remotes["node2"].fake
        fake.remove_container = lambda container, **_: None
        assert jobs.stop(Options()) == ExitCode.CLUSTER

    def test_nothing_is_proved_of_a_node_that_is_not_reached(
        self, cluster: Cluster, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster.running()
        cluster.missing["node2"] = Row(name="node2", address="node2.example", state=State.DOWN)
        del cluster.remotes["node2"]
        assert jobs.stop(Options()) == ExitCode.CLUSTER
        assert "node2: not reached, so nothing is proved there" in words(capsys)

    def test_nothing_is_proved_of_a_node_that_can_not_report(
        self, cluster: Cluster, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster.running()
        cluster.remotes["node2"].engine_fails = RingmasterError("node2: its Docker engine doesn't answer")
        assert jobs.stop(Options()) == ExitCode.CLUSTER
        assert "node2: not reached, so nothing is proved there" in words(capsys)

    def test_nothing_is_proved_of_a_node_that_was_left_out(
        self, cluster: Cluster, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cluster.running()
        del cluster.remotes["node2"]
        assert jobs.stop(Options()) == ExitCode.CLUSTER
        assert "node2: the job is there too, but LIMIT or the inventory leaves it out" in words(capsys)


def test_a_jobs_processes_are_recognized_by_their_environment() -> None:
    name = f"job-{uuid.uuid4().hex}"
    program = [sys.executable, "-IS", "-c", "input()"]
    environment = {**os.environ, "RINGMASTER_JOB": name}
    with subprocess.Popen(program, env=environment, stdin=subprocess.PIPE) as process:
        try:
            look = [sys.executable, "-IS", "-c", teardown._PROCESSES]
            found = {each: subprocess.check_output([*look, each]).split() for each in (name, name[:-1])}
        finally:
            process.kill()
    assert found == {name: [str(process.pid).encode()], name[:-1]: []}
