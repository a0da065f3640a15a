"""Which nodes are not known to have ended well, and the words for it."""

from dataclasses import replace
from pathlib import Path

import pytest

from launcher.base.errors import ExitCode
from launcher.follow.node_state import NodeState
from launcher.follow.unseen import unseen
from tests.support.ends import end
from tests.support.fake_runtime import FakeNode, FakeRuntime
from tests.support.following import follow_with
from tests.support.plans import cluster_plan

GONE = "container gone"
PLANNED = tuple(replace(node, ranks=2) for node in cluster_plan(3).nodes)


def state(number: int, *codes: int, agent: int | None = None) -> NodeState:
    """A node whose ranks ended with `codes`, as far as they are known, and whose agent ended with `agent`."""
    node = NodeState.logging_to(Path("/dev/null"), FakeNode(PLANNED[number - 1], FakeRuntime()))
    node.ends.update({rank: end(rank, exit_code=code) for rank, code in enumerate(codes)})
    node.agent_end = None if agent is None else end(None, exit_code=agent)
    return node


@pytest.mark.parametrize("well", [state(3, 0, 0), state(3, 0, 0, agent=1), state(3, agent=0), state(3, 0, agent=0)])
def test_a_node_ended_well_if_its_ranks_say_so_or_its_agent_does(well: NodeState) -> None:
    assert unseen(PLANNED, [state(1, 0, 0, agent=0), state(2, 0, 0), well], {}) == ""


@pytest.mark.parametrize(
    ("odd", "away", "words"),
    [
        (None, {"node3": GONE}, GONE),
        (None, {}, "not seen to end"),
        (state(3), {}, "not seen to end"),
        (state(3, 0), {}, "not seen to end"),
        (state(3, 0, agent=0), {"node3": GONE}, GONE),
        (state(3, 0, agent=137), {}, "ended with 137"),
        (state(3, 0, 1), {}, "not seen to end"),
    ],
)
def test_of_one_that_did_not_the_words_say_why_not(odd: NodeState | None, away: dict[str, str], words: str) -> None:
    followed = [state(1, 0, 0), state(2, agent=0), *([odd] if odd else [])]
    assert unseen(PLANNED, followed, away) == f"node3: {words}; node1, node2 ended with 0"


def test_nodes_with_the_same_fate_share_the_words() -> None:
    away = {"node1": GONE, "node2": "it is out of reach", "node3": GONE}
    assert unseen(PLANNED, [], away) == "node1, node3: container gone; node2: it is out of reach"


def test_a_container_that_is_removed_after_all_its_ranks_were_heard_takes_nothing_away() -> None:
    followed = [state(1, 0, 0), state(2, 0, 0), state(3, 0, 0, agent=0)]
    assert unseen(PLANNED, followed, dict.fromkeys(("node1", "node2", "node3"), GONE)) == ""


def test_a_job_whose_containers_are_gone_has_not_succeeded(tmp_path: Path) -> None:
    runtime = FakeRuntime()
    runtime.start = lambda nodes, port: []  # type: ignore[method-assign]
    runtime.removed = dict.fromkeys(("node1", "node2"), GONE)
    outcome, _ = follow_with(tmp_path, runtime, only_follows=True)
    assert (outcome.state, outcome.exit_code) == ("unknown", ExitCode.CLUSTER)
    assert outcome.failure and outcome.failure.reason == "node1, node2: container gone"


def test_a_container_that_somebody_removes_while_it_is_followed_has_not_succeeded(tmp_path: Path) -> None:
    runtime = FakeRuntime()

    def removed() -> None:
        runtime.nodes[0].exited(0)
        runtime.nodes[0].end(0)
        runtime.removed = {"node2": GONE}
        runtime.nodes[1].end(0)  # a container that is gone prints nothing, and was not killed

    outcome, _ = follow_with(tmp_path, runtime, removed)
    assert (outcome.state, outcome.exit_code) == ("unknown", ExitCode.CLUSTER)
    assert outcome.failure and outcome.failure.reason == "node2: container gone; node1 ended with 0"


def test_whoever_waits_for_a_container_that_somebody_removed_is_ended(tmp_path: Path) -> None:
    runtime = FakeRuntime()

    def removed() -> None:
        runtime.removed = {"node2": GONE}
        runtime.nodes[1].end(0)

    outcome, _ = follow_with(tmp_path, runtime, removed)
    assert "terminate" in runtime.nodes[0].calls
    assert outcome.state == "unknown"
    assert outcome.failure and outcome.failure.reason == "node1: ended with 143; node2: container gone"


def test_a_container_that_is_pruned_after_its_end_ends_nobody(tmp_path: Path) -> None:
    runtime = FakeRuntime()

    def pruned() -> None:
        runtime.nodes[1].exited(0)
        runtime.nodes[1].end(0)
        runtime.removed = {"node2": GONE}
        runtime.watched = looked

    def looked() -> None:
        looks.append(None)
        if len(looks) == 3:  # long after node2's end was heard
            runtime.nodes[0].exited(0)
            runtime.nodes[0].end(0)

    looks: list[None] = []
    outcome, _ = follow_with(tmp_path, runtime, pruned)
    assert outcome.state == "succeeded"


def test_a_failure_that_is_known_is_the_answer(tmp_path: Path) -> None:
    runtime = FakeRuntime()

    def fails() -> None:
        runtime.removed = {"node2": GONE}
        runtime.nodes[1].end(0)
        runtime.nodes[0].exited(1)
        runtime.nodes[0].end(1)

    outcome, _ = follow_with(tmp_path, runtime, fails)
    assert (outcome.state, outcome.exit_code) == ("failed", ExitCode.FAILED)
    assert outcome.failure and (outcome.failure.node, outcome.failure.rank) == ("node1", 0)


def test_an_agent_whose_end_is_known_only_after_its_output_has_ended_is_heard(tmp_path: Path) -> None:
    class Late(FakeNode):
        asked = 0

        def poll(self) -> int | None:
            """Its output has ended: a moment later so has the process."""
            self.asked += self.silent
            return self.code if self.asked > 1 else None

        silent = False

        def read(self) -> bytes:
            data = super().read()
            self.silent = not data
            return data

    runtime = FakeRuntime()

    def ends() -> None:
        for code, node in enumerate(runtime.nodes):
            node.__class__ = Late
            node.end(code)

    outcome, _ = follow_with(tmp_path, runtime, ends)
    assert outcome.state == "failed"
    assert outcome.failure and outcome.failure.node == "node2"
