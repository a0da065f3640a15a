"""Delivering the image: what is kept of each round, without nodes."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import delivery
from launcher.base.errors import RingmasterError

SAID = """
changed: [node2] =>
    bytes: 162529280
    took_s: 26.9
changed: [node3] =>
    took_s: 28.4
changed: [node1] =>
    took_s: null
"""


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Put deliveries that take no time in the place of real ones; return what is done, in order."""
    done: list[tuple[str, ...]] = []

    @contextmanager
    def nodes() -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(nodes={f"node{number}": None for number in range(1, 10)})

    def make(_machines: Any, what: str = "") -> str:
        done.append(("make", what))
        return "sha256:0"

    def chain(_machines: Any, _image: str, names: list[str]) -> tuple[float, float]:
        done.append(("chain", *names))
        return 26 + len(names) / 2, 40 + len(names)

    def pipes(_machines: Any, _image: str, names: list[str]) -> float:
        done.append(("pipes", *names))
        return 26.0 * len(names)

    monkeypatch.setattr(delivery, "_machines", nodes)
    monkeypatch.setattr(delivery, "_make", make)
    monkeypatch.setattr(delivery, "_along_the_chain", chain)
    monkeypatch.setattr(delivery, "_by_pipes", pipes)
    monkeypatch.setattr(delivery, "_forget", lambda _machines, names: done.append(("forget", *names)))
    return done


@pytest.mark.parametrize(("quick", "rounds"), [(False, 3), (True, 1)])
def test_eight_nodes_are_promised_to_take_hardly_longer_than_one(
    machines: list[tuple[str, ...]], quick: bool, rounds: int
) -> None:
    result = delivery.measure(quick)
    assert [(row.n, row.median) for row in result.rows] == [
        (rounds, 26.5), (rounds, 30), (rounds, 30), (1, 208), (rounds, 41), (rounds, 48)
    ]  # fmt: skip
    assert [(round(one.value or 0, 2), one.limit) for one in result.ratios] == [
        (1.13, "at most 1.25"), (1.17, ""), (6.93, "")
    ]  # fmt: skip
    assert not result.missed


def test_nobody_has_the_image_before_it_is_delivered(machines: list[tuple[str, ...]]) -> None:
    delivery.measure(quick=True)
    everyone = tuple(f"node{number}" for number in range(1, 10))
    others = everyone[1:]
    assert machines == [
        ("forget", *everyone), ("make", ""), ("chain", "node2"),
        ("forget", *everyone), ("make", ""), ("chain", *others),
        ("make", "top"), ("chain", *others),
        ("forget", *others), ("pipes", *others),
    ]  # fmt: skip


def test_the_slowest_counts_and_nobody_may_be_missing() -> None:
    assert delivery.slowest(SAID, 2) == 28.4
    with pytest.raises(RingmasterError, match="2 nodes fetched the image, not 8"):
        delivery.slowest(SAID, 8)
