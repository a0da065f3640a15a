"""Who is suspected where every rank that failed speaks only of others."""

import pytest

from launcher.follow.cause.failure import RankEnd
from launcher.follow.cause.suspects import Unended, root_cause
from tests.support.ends import RAISED, end

HEAD = ("Traceback (most recent call last):", "  step()")
WAITED = (*HEAD, "RuntimeError: [unbound_buffer.cc:81] Timed out waiting 300000ms for recv operation to complete")
ADDRESSES = {"node0": "10.0.0.1", "node1": "10.0.0.2", "node2": "10.0.0.3"}


def victim(rank: int = 0, line: str = WAITED[-1], **fields: object) -> RankEnd:
    return end(rank, lines=(*HEAD, line), error_at=98.0, **fields)


def told(rank: int) -> RankEnd:
    return end(rank, exit_code=143, signal="SIGTERM", told_at=98.5, ended_at=98.6)


def unended(rank: int, **fields: object) -> Unended:
    return Unended(node=f"node{rank}", rank=rank, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ([unended(1, heard=True, state="T"), unended(2, heard=True, state="S")], "was frozen (SIGSTOP, or a debugger)"),
        ([unended(1, heard=False), unended(2, heard=True)], "did not react to SIGTERM and had to be killed"),
        ([unended(1, away=True), unended(2, state="T")], "is on a node that doesn't answer"),
        ([unended(1, started=False), told(2)], "never started"),
        ([end(1, exit_code=0, ended_at=50.0), told(2)], "had ended with exit code 0"),
        ([unended(1), told(2)], "had to be killed"),
        ([told(1)], "was still running"),
        ([end(1, exit_code=0, ended_at=98.3)], "had ended with exit code 0"),  # its peer's error comes as it leaves
        ([end(1, exit_code=0, ended_at=110.0)], "was still running, and ended with exit code 0 after 12 s"),
    ],
)
def test_the_one_that_is_singled_out(others: list[RankEnd | Unended], words: str) -> None:
    ends = [victim(), *(each for each in others if isinstance(each, RankEnd))]
    failure = root_cause(ends, [each for each in others if isinstance(each, Unended)], ADDRESSES)
    assert failure is not None and failure.suspect
    assert (failure.node, failure.rank, failure.exit_code) == ("node1", 1, None)
    assert failure.reason.startswith("suspect: rank 1 on node1 ") and words in failure.reason
    assert "rank 0 on node0: RuntimeError: [unbound_buffer.cc:81] Timed out" in failure.reason
    assert failure.log_tail == WAITED


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("RuntimeError: [Rank 0]: Ranks 2 failed to pass monitoredBarrier in 5000 ms", 2),
        ("RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.2]:1", 1),
        ("torch.distributed.DistNetworkError: The client socket has timed out after 60s while trying to connect to "
         "(10.0.0.3, 29500).", 2),
    ],
)  # fmt: skip
def test_whom_the_others_name(line: str, rank: int) -> None:
    failure = root_cause([victim(line=line), told(1), told(2)], (), ADDRESSES)
    assert failure is not None and (failure.rank, failure.suspect) == (rank, True)
    assert "is the one that others missed" in failure.reason


def test_an_address_that_all_nodes_have_names_nobody() -> None:
    line = "RuntimeError: [pair.cc:534] Connection closed by peer [127.0.0.1]:1"
    failure = root_cause([victim(line=line), told(1), told(2)], (), dict.fromkeys(ADDRESSES, "127.0.0.1"))
    assert failure is not None and (failure.node, failure.suspect) == (None, False)
    assert failure.reason.startswith("unknown: nothing singles one rank out: rank 1 on node1 was still running, rank 2")


def test_two_of_one_node_are_the_node() -> None:
    both = [Unended(node="node1", rank=rank, heard=False) for rank in (1, 2)]
    failure = root_cause([victim()], both)
    assert failure is not None and (failure.node, failure.rank, failure.suspect) == ("node1", None, True)


def test_that_the_ranks_never_met_is_said() -> None:
    line = "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 1/2 clients joined."
    failure = root_cause([victim(line=line), told(1)])
    assert failure is not None and failure.rank == 1 and "while the ranks first met" in failure.reason


def test_a_rank_that_is_alone_is_its_own_cause() -> None:
    failure = root_cause([victim()])
    assert failure is not None and (failure.rank, failure.suspect, failure.reason) == (0, False, WAITED[-1])


def test_a_true_cause_goes_before_every_suspect() -> None:
    late = end(2, lines=RAISED, error_at=99.0)
    failure = root_cause([victim(), end(1, exit_code=0, ended_at=50.0), late])
    assert failure is not None and (failure.rank, failure.suspect, failure.reason) == (2, False, "ValueError: boom")


def test_a_data_worker_that_was_killed_is_no_lost_peer() -> None:
    lines = (*HEAD, "ConnectionResetError: [Errno 104] Connection reset by peer", "",
             "The above exception was the direct cause of the following exception:", "",
             *HEAD, "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.")  # fmt: skip
    failure = root_cause([end(0, lines=lines, error_at=98.0), told(1)], (), ADDRESSES)
    assert failure is not None and (failure.node, failure.rank, failure.suspect) == ("node0", 0, False)
    assert "DataLoader worker (pid 4711) is killed by signal: Killed." in failure.reason


def test_an_exception_before_the_lost_peer_is_the_cause() -> None:
    chain = (*RAISED, "", "During handling of the above exception, another exception occurred:", "", *WAITED)
    failure = root_cause([victim(), end(1, lines=chain, error_at=98.5), told(2)])
    assert failure is not None and (failure.rank, failure.suspect) == (1, False)
    assert failure.reason.endswith("(while handling: ValueError: boom)")


def test_two_at_the_same_moment_on_two_nodes() -> None:
    first = end(0, lines=RAISED, error_at=98.5, unsure_s=0.25)
    second = end(1, lines=(*HEAD, "KeyError: 'x'"), error_at=98.6, unsure_s=0.25)
    failure = root_cause([first, second])
    assert failure is not None and failure.suspect and failure.rank == 0
    assert failure.reason == "suspect: ValueError: boom; rank 1 on node1 failed at the same time: KeyError: 'x'"


def test_of_two_at_the_same_moment_the_one_that_was_killed() -> None:
    raised = end(0, lines=RAISED, error_at=98.5, unsure_s=0.25)
    killed = end(1, exit_code=139, signal="SIGSEGV", ended_at=98.6, unsure_s=0.25)
    failure = root_cause([raised, killed])
    assert failure is not None and (failure.rank, failure.suspect) == (1, False)
