"""A node that is told to go: its container is stopped, its machine shuts down, or its agent gets SIGTERM."""

import json
import signal
from pathlib import Path

import pytest

from launcher.base.errors import ExitCode
from launcher.follow.cause.torchrun_words import closed, death_signal, failed
from launcher.follow.outcome import Outcome, recorded
from launcher.follow.show.screen import Screen
from launcher.follow.summary import finish
from launcher.job.folder import JobFolder, create
from tests.support.fake_runtime import FakeNode, FakeRuntime
from tests.support.following import follow_with, send
from tests.support.plans import facts, plan_for
from trainer.reporting.summary import read_records

DEATH = "W1122 06:00:00.1 torch/…/api.py:752] Received 15 death signal, shutting down workers"


def go(node: FakeNode) -> None:
    node.agent_says(DEATH)
    node.exited(143, at=1.0, told={"signal": "SIGTERM", "at": 0.5})
    node.end(1)


def test_the_job_is_stopped_and_the_others_end_in_their_own_time(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    outcome, screen = follow_with(tmp_path, runtime, lambda: go(runtime.nodes[1]))
    assert (outcome.state, outcome.exit_code, outcome.failure) == ("stopped", ExitCode.TERMINATED, None)
    assert outcome.told == ("node2",)
    assert runtime.nodes[0].signals == [(signal.SIGTERM, None)], "asked, and neither terminated nor killed"
    assert "terminate" not in runtime.nodes[0].calls
    assert runtime.nodes[1].signals == [], "its ranks have heard it from their agent"
    assert "node2 was told to go (SIGTERM); the others are asked to end as well" in screen.notes


def test_ctrl_c_meanwhile_does_not_cut_a_checkpoint_off(tmp_path: Path) -> None:
    runtime = FakeRuntime(obeys=False)
    node1 = 0

    def begin() -> None:
        runtime.nodes[1].agent_says(DEATH)
        again = runtime.watched

        def interrupt() -> None:
            if runtime.nodes[0].signals and not asked:
                asked.append(True)
                send(signal.SIGINT)()
            elif asked:
                for node in runtime.nodes:
                    if node.code is None:
                        node.exited(143)
                        node.end(1)

        assert again
        runtime.watched = interrupt

    asked: list[bool] = []
    outcome, screen = follow_with(tmp_path, runtime, begin)
    assert outcome.state == "stopped"
    assert runtime.nodes[node1].signals == [(signal.SIGTERM, None)]
    assert "the ranks are ending already; Ctrl-C again: stop now" in screen.notes


def test_a_failure_before_it_stays_a_failure(tmp_path: Path) -> None:
    runtime = FakeRuntime()

    def fail() -> None:
        runtime.nodes[0].exited(3, at=1.0, told=None)
        runtime.nodes[1].agent_says(DEATH)
        runtime.nodes[1].told(at=5.0)
        runtime.nodes[1].exited(143, at=5.1, told={"signal": "SIGTERM", "at": 5.0})
        runtime.nodes[1].end(1)
        runtime.nodes[0].end(1)

    outcome, _ = follow_with(tmp_path, runtime, fail)
    assert outcome.state == "failed" and outcome.failure is not None
    assert (outcome.failure.node, outcome.failure.exit_code) == ("node1", 3)


def test_a_request_after_a_failure_hides_nothing(tmp_path: Path) -> None:
    runtime = FakeRuntime(obeys=False)

    def fail() -> None:
        runtime.nodes[1].exited(3)
        runtime.nodes[1].end(1)

        def interrupt() -> None:
            if "terminate" in runtime.nodes[0].calls and not sent:
                sent.append(True)
                send(signal.SIGINT)()
                runtime.nodes[0].end(1)

        runtime.watched = interrupt

    sent: list[bool] = []
    outcome, _ = follow_with(tmp_path, runtime, fail)
    assert sent and outcome.state == "failed"
    assert outcome.failure is not None and outcome.failure.node == "node2"


def test_sigterm_from_a_stranger_is_what_the_rank_died_of(tmp_path: Path) -> None:
    runtime = FakeRuntime()

    def die() -> None:
        runtime.nodes[1].exited(143, "SIGTERM", at=1.0, told=None)
        runtime.nodes[1].end(1)

    outcome, _ = follow_with(tmp_path, runtime, die)
    assert outcome.state == "failed" and outcome.failure is not None
    assert (outcome.failure.node, outcome.failure.rank, outcome.failure.reason) == ("node2", 1, "killed by SIGTERM")


def test_who_is_told_by_another_launcher_has_time_to_end(tmp_path: Path) -> None:
    runtime = FakeRuntime(obeys=False)

    def stop() -> None:
        for node in runtime.nodes:
            node.told(at=1.0)
        runtime.nodes[1].exited(143, at=1.1, told={"signal": "SIGTERM", "at": 1.0})
        runtime.nodes[1].end(1)

        def later() -> None:
            if looks.append(True) or len(looks) > 6:  # type: ignore[func-returns-value]
                runtime.nodes[0].exited(143, at=3.0, told={"signal": "SIGTERM", "at": 1.0})
                runtime.nodes[0].end(1)
                runtime.watched = lambda: None

        runtime.watched = later

    looks: list[bool] = []
    follow_with(tmp_path, runtime, stop)
    assert "terminate" not in runtime.nodes[0].calls


def test_it_is_recorded_behind_half_a_line(tmp_path: Path) -> None:
    """Who wrote the metrics may have been killed when its time was over."""
    runtime = FakeRuntime()
    outcome, _ = follow_with(tmp_path, runtime, lambda: go(runtime.nodes[1]))
    folder, plan = JobFolder(path=tmp_path / "recorded"), plan_for(facts(2))
    create(folder, plan)
    folder.metrics.write_text('{"kind": "step", "step": 1}\n{"kind": "st')
    finish(folder, plan, outcome, 1000.0, print, ended_at=1060.0)
    assert [each.get("event") for each in read_records(folder.metrics)] == [None, "incident"]


def test_it_is_recorded_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runtime = FakeRuntime()
    outcome, _ = follow_with(tmp_path, runtime, lambda: go(runtime.nodes[1]))
    folder, plan = JobFolder(path=tmp_path / "recorded"), plan_for(facts(2))
    create(folder, plan)
    for _ in range(2):  # `make logs` may write it again
        summary = finish(folder, plan, outcome, 1000.0, print, ended_at=1060.0)
    (incident,) = summary["incidents"]
    assert {key: incident[key] for key in ("node", "rank", "kind", "action", "lost_s")} == {
        "node": "node2", "rank": None, "kind": "told to go", "action": "stopped", "lost_s": None
    }  # fmt: skip
    records = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    assert [(each["kind"], each["event"], each["node"]) for each in records] == [("event", "incident", "node2")]
    assert "node2 was told to go" in folder.report.read_text()
    assert recorded(json.loads(folder.summary.read_text())) == outcome
    with Screen(plan) as screen:
        screen.result(summary, "report.html")
    assert "stopped: node2 was told to go" in capsys.readouterr().out


def test_an_older_summary_has_no_incidents() -> None:
    old = {"state": "stopped", "exit_code": 143, "failure": None}
    assert recorded(old) == Outcome(state="stopped", exit_code=ExitCode.TERMINATED)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (DEATH, "SIGTERM"),
        ("Received Signals.SIGTERM death signal, shutting down workers", "SIGTERM"),
        ("torch.distributed.elastic.multiprocessing.api.SignalException: Process 217 got signal: 15", "SIGTERM"),
        ("epoch 3", None),
    ],
)
def test_what_torchrun_says_of_itself(line: str, name: str | None) -> None:
    assert death_signal(line) == name


def test_what_torchrun_says_of_its_ranks() -> None:
    lines = (
        "Sending process 12 closing signal SIGTERM",
        "E failed (exitcode: -9) local_rank: 1 (pid: 13) of binary: x",
    )
    assert (closed(lines), failed(lines)) == ({12}, {13: -9})
