"""What happens on a node: it is lost, its ranks refuse to start, or fail."""

from pathlib import Path

from launcher.base.errors import ExitCode
from tests.support.fake_runtime import FakeRuntime
from tests.support.following import follow_with


def test_a_lost_node_ends_the_job_and_is_named(tmp_path: Path) -> None:
    runtime = FakeRuntime()

    def lose() -> None:
        runtime.nodes[1].lost = "no answer for 8 s, and node1 can't reach it either"

    outcome, _ = follow_with(tmp_path, runtime, lose)
    assert (outcome.state, outcome.exit_code) == ("failed", ExitCode.CLUSTER)
    assert outcome.failure is not None
    assert (outcome.failure.node, outcome.failure.exit_code, outcome.failure.signal) == ("node2", None, None)
    assert outcome.failure.reason.startswith("the node is lost: no answer for 8 s")
    assert "terminate" in runtime.nodes[0].calls


def test_gpus_that_are_not_there_are_a_refusal(tmp_path: Path) -> None:
    runtime = FakeRuntime()

    def refuse() -> None:
        runtime.nodes[1].say("torch sees 0 of 2 GPUs")
        runtime.nodes[1].exited(3, refused=True)
        runtime.nodes[1].end(1)

    outcome, _ = follow_with(tmp_path, runtime, refuse)
    assert (outcome.state, outcome.exit_code) == ("failed", ExitCode.NOT_STARTED)
    assert outcome.failure is not None and "torch sees 0 of 2 GPUs" in outcome.failure.reason


def test_a_users_own_3_is_no_refusal(tmp_path: Path) -> None:
    runtime = FakeRuntime()

    def fail() -> None:
        runtime.nodes[1].exited(3)
        runtime.nodes[1].end(1)

    assert follow_with(tmp_path, runtime, fail)[0].exit_code == ExitCode.FAILED
