"""Nodes that are waited for are named, and nodes out of reach."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.follow import presence
from tests.support.fake_runtime import FakeRuntime
from tests.support.following import Notes, follow, plan_of, run
from tests.support.plans import facts, plan_for


def test_a_node_that_is_waited_for_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "_JOIN_S", 0.5)
    named = tmp_path / "named"

    def note(self: Notes, text: str) -> None:
        self.notes.append(text)
        if text.startswith("waiting for node2 to join ("):
            named.touch()

    monkeypatch.setattr(Notes, "note", note)
    # Both run until node2 alone is named: at first node1 may not have reported either. The limit ends a failing test.
    plan = plan_of(f"import os, time\nwhile not os.path.exists({str(named)!r}): time.sleep(0.05)", "")
    waits = ("timeout", "60", "sh", "-c", f"until [ -e {shlex.quote(str(named))} ]; do sleep 0.05; done")
    plan = replace(plan, nodes=(plan.nodes[0], replace(plan.nodes[1], argv=waits)))
    outcome, screen, _ = run(tmp_path, plan)
    assert named.exists(), screen.notes
    assert outcome.state == "succeeded"


def test_nodes_out_of_reach_are_named_once_and_so_is_their_return(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    looks = iter([["node2"], ["node2"], []])

    def watch() -> list[str]:
        try:
            return next(looks)
        except StopIteration:
            for node in runtime.nodes:
                node.exited(0) if node.code is None else None
                node.end(0)
            return []

    runtime.watch = watch  # type: ignore[method-assign]
    outcome, screen = follow(tmp_path, plan_for(facts(2)), runtime)
    assert outcome.state == "succeeded"
    assert screen.notes == [
        "node2 doesn't answer; trying again (the job goes on meanwhile)",
        "node2 answers again",
    ]


def test_what_the_runtime_knows_of_the_nodes_is_said(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    runtime.told = ["node2: no answer for 10 s"]

    def watched() -> None:
        for node in runtime.nodes:
            node.exited(0) if node.code is None else None
            node.end(0)

    runtime.watched = watched
    _, screen = follow(tmp_path, plan_for(facts(2)), runtime)
    assert screen.notes == ["node2: no answer for 10 s"]


def test_what_it_learns_at_the_very_end_is_said_too(tmp_path: Path) -> None:
    class Late(FakeRuntime):
        def sweep(self) -> int:
            self.told = ["node2: lines are missing"]
            return super().sweep()

    runtime = Late()

    def watched() -> None:
        for node in runtime.nodes:
            node.exited(0) if node.code is None else None
            node.end(0)

    runtime.watched = watched
    _, screen = follow(tmp_path, plan_for(facts(2)), runtime)
    assert screen.notes == ["node2: lines are missing"]
