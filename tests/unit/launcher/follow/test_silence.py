"""A script that prints nothing for long is said to, once, and only where nothing at all was heard of it."""

from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest

from launcher.follow import silence
from launcher.follow.cause.failure import RankEnd
from launcher.follow.frames import Lines
from launcher.follow.node_state import NodeState
from launcher.follow.silence import Heard, Silence, looks_stuck
from launcher.job.plan import Plan
from launcher.job.program import Program
from launcher.job.request import Request
from launcher.job.spawn_style import SpawnStyle
from tests.support.fake_runtime import FakeNode, FakeRuntime
from tests.support.following import Notes, plan_of, run
from tests.support.plans import PLACES, facts, plan_for

QUIET = Heard(all_started=True, anything=False)


@pytest.fixture
def nodes() -> list[NodeState]:
    found = []
    for planned in plan_for(facts(2)).nodes:
        node = FakeNode(planned, FakeRuntime())
        node.ranks[planned.first_rank] = 7
        found.append(NodeState(node=node, log=BytesIO(), live=True))
    return found


def said(nodes: list[NodeState], *looks: float, applies: bool = True, reported: bool = False) -> list[str]:
    notes: list[str] = []
    watch = Silence(nodes, notes.append, applies=applies)
    for now in looks:
        watch.look(now, reported=reported)
    return notes


@pytest.mark.parametrize(
    ("heard", "started_s", "stuck"),
    [
        (QUIET, 20.0, True),
        (QUIET, 19.9, False),
        (replace(QUIET, anything=True), 60.0, False),
        (replace(QUIET, all_started=False), 60.0, False),
    ],
)
def test_it_needs_all_ranks_and_all_of_the_time(heard: Heard, started_s: float, stuck: bool) -> None:
    assert looks_stuck(heard, started_s=started_s) == stuck


def test_it_is_said_once_and_says_how_to_go_on(nodes: list[NodeState]) -> None:
    (note,) = said(nodes, 1000.0, 1019.0, 1020.5, 1021.0, 1100.0)
    assert note.startswith("no output for 20 s: it may be loading")
    assert "RANKS=1" in note and "LAUNCH_STYLE=spawn" in note


def test_the_time_counts_from_the_last_ranks_start(nodes: list[NodeState]) -> None:
    late, notes = nodes[1].node.ranks, []
    watch = Silence(nodes, notes.append, applies=True)
    pid = late.pop(1)
    watch.look(0.0, reported=False)
    late[1] = pid
    for now in (100.0, 119.0):
        watch.look(now, reported=False)
    assert notes == []
    watch.look(120.0, reported=False)
    assert len(notes) == 1


def test_what_was_heard_once_is_no_silence(nodes: list[NodeState]) -> None:
    assert said(nodes, 0.0, 60.0, reported=True) == []
    nodes[1].keep(Lines(rank=1, texts=[b"loading"]))
    assert said(nodes, 0.0, 60.0) == []


def test_what_the_agent_prints_is_nothing_of_the_scripts(nodes: list[NodeState]) -> None:
    nodes[0].keep(Lines(rank=None, texts=[b"torchrun warns"]))
    assert len(said(nodes, 0.0, 60.0)) == 1


def test_a_job_that_ends_is_not_stuck(nodes: list[NodeState]) -> None:
    nodes[0].ends[0] = RankEnd(node="node1", rank=0, exit_code=0, ended_at=1.0)
    assert said(nodes, 0.0, 60.0) == []


def test_a_job_whose_start_was_not_seen_may_have_printed_before(nodes: list[NodeState]) -> None:
    nodes[1].live = False
    assert said(nodes, 0.0, 60.0) == []


def test_it_is_not_said_where_it_can_not_be(nodes: list[NodeState]) -> None:
    assert said(nodes, 0.0, 60.0, applies=False) == []


def test_a_followed_job_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "_SILENT_S", 0.5)
    told = tmp_path / "told"

    def note(self: Notes, text: str) -> None:
        self.notes.append(text)
        if text.startswith("no output for"):
            told.touch()

    monkeypatch.setattr(Notes, "note", note)
    # It ends when the user was told, or at the latest after a minute.
    waits = f"import os, time\nend = time.time() + 60\nwhile not os.path.exists({str(told)!r}) and time.time() < end: "
    outcome, screen, _ = run(tmp_path, plan_of(f"{waits}time.sleep(0.05)"))
    assert told.exists(), screen.notes
    assert outcome.state == "succeeded"


def test_a_plan_knows_whether_its_program_may_start_its_own() -> None:
    def own(ranks: int | None = None, spawn: SpawnStyle | None = None) -> bool:
        script = Program(arguments=(), root=PLACES.code, script=PLACES.code / "x.py", spawn=spawn)
        plan: Plan = plan_for(facts(1), Request(program=script, ranks=ranks))
        return plan.own_processes

    assert (own(), own(ranks=1), own(ranks=2)) == (False, True, False)
    assert (own(spawn=SpawnStyle()), own(ranks=2, spawn=SpawnStyle())) == (True, False)
    assert not plan_for(facts(1)).own_processes, "the trainer"
