"""What comes home: by kind, size, and what is here already."""

import pytest

from launcher.cluster.transfer import policy
from launcher.cluster.transfer.policy import Kind, Limits, Offer, Policy, restless


def offer(size: int, path: str = "x", *, kind: Kind = Kind.WORK, node: str = "node1") -> Offer:
    return Offer(kind=kind, node=node, path=path, size=size)


def test_the_limits_that_nobody_asked_for() -> None:
    chosen = Policy(limits=Limits.of(None))
    assert chosen.stays(offer(2 * 10**9)) == ""
    assert chosen.stays(offer(2 * 10**9 + 1)) == "2.0 GB; the limit is 2.0 GB a file"
    for number in range(5):
        chosen.came(offer(2 * 10**9, f"{number}.pt", node=f"node{number % 2}"))
    assert chosen.stays(offer(1, "one.pt")) == "1 bytes; the limit is 10.0 GB a job"
    assert chosen.stays(offer(2 * 10**9, "0.pt", node="node0")) == "", "it takes the place of what is here"


@pytest.mark.parametrize(("limit", "size", "why"), [(0, 0, "WORK_LIMIT=0"), (5, 5, ""), (5 * 10**10, 3 * 10**9, "")])
def test_who_says_how_much_means_files_and_the_job(limit: int, size: int, why: str) -> None:
    assert Policy(limits=Limits.of(limit)).stays(offer(size)) == why


@pytest.mark.parametrize("kind", [Kind.RUN, Kind.CHECKPOINT])
def test_what_is_in_run_dir_comes_always(kind: Kind) -> None:
    assert Policy(limits=Limits.of(0)).stays(offer(10**12, kind=kind)) == ""


def test_files_are_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "MOST_FILES", 1)
    chosen = Policy(limits=Limits())
    chosen.came(offer(1))
    assert chosen.stays(offer(1)) == "" and chosen.stays(offer(1, "y")) == "the limit is 1 files"


@pytest.mark.parametrize(
    ("name", "size", "age_s", "waits"),
    [
        ("log.txt", 10, 0.0, False),
        ("model.pt", 10**9, 0.5, True),
        ("model.pt", 10**9, 2.5, False),
        ("model.pt.tmp", 10, 100.0, True),
        (".lock", 10, 100.0, True),
        ("model.pt", 10**9, -5.0, True),
    ],
)
def test_what_is_being_written_waits(name: str, size: int, age_s: float, *, waits: bool) -> None:
    assert restless(name, size, age_s) is waits
