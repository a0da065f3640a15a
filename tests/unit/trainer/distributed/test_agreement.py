"""Ranks that agree; each test plays them in turn."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from trainer.distributed import agreement
from trainer.distributed.agreement import Agreement
from trainer.distributed.world import World


@dataclass
class _Work:
    wait: Callable[[object], None]


@dataclass
class _Line:
    """An all-reduce of two ranks called in turn, rank 0 first: both have sent when the first one waits."""

    sent: list[Tensor] = field(default_factory=list)

    def all_reduce(self, flags: Tensor, **_: object) -> _Work:
        self.sent.append(flags)
        number = len(self.sent) - 1

        def wait(_: object) -> None:
            first, second = self.sent[number // 2 * 2 : number // 2 * 2 + 2]
            assert first.shape == second.shape, "ranks send at the same steps"
            largest = torch.maximum(first, second)
            first.copy_(largest)
            second.copy_(largest)

        return _Work(wait)


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> list[Agreement]:
    monkeypatch.setattr(agreement.dist, "all_reduce", _Line().all_reduce)
    cpu = torch.device("cpu")
    worlds = [
        World(rank=rank, local_rank=0, world_size=2, nodes=2, device=cpu, backend="gloo", data_group=None)
        for rank in range(2)
    ]
    return [Agreement(world, 300.0) for world in worlds]


def test_a_wish_of_one_reaches_both_at_the_same_step_and_once(
    ranks: list[Agreement], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(agreement.time, "monotonic", lambda: now[0])
    for each in ranks:
        each._since = 0.0
    heard: list[tuple[int, list[int]]] = []
    for step in range(60):
        now[0] += 0.01  # ten steps in a period
        answers = [each.exchange([15 if step == 33 and rank == 1 else 0, 0]) for rank, each in enumerate(ranks)]
        assert answers[0] == answers[1]
        if any(answers[0]):
            heard.append((step, answers[0]))
    assert [answer for _, answer in heard] == [[15, 0]]
    assert 33 < heard[0][0] <= 33 + 11, "within a period and a step"


def test_fast_steps_are_not_held_up_by_an_exchange_each(
    ranks: list[Agreement], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = _Line()
    monkeypatch.setattr(agreement.dist, "all_reduce", line.all_reduce)
    now = [0.0]
    monkeypatch.setattr(agreement.time, "monotonic", lambda: now[0])
    for each in ranks:
        each._since = 0.0
    for _ in range(1000):
        now[0] += 0.002
        for each in ranks:
            each.exchange([0, 0])
    assert 20 <= len(line.sent) / 2 <= 23  # in two seconds


def test_what_was_fast_may_become_slow(ranks: list[Agreement], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(agreement.time, "monotonic", lambda: now[0])
    for each in ranks:
        each._since = 0.0
    for step in range(2000):
        now[0] += 0.0001 if step < 1000 else 5.0
        heard = [each.exchange([2 if step >= 1000 else 0, 0]) for each in ranks]
        if any(heard[0]):
            break
    assert step <= 1000 + agreement.MOST_STEPS + 1


def test_one_rank_hears_itself_at_once() -> None:
    cpu = torch.device("cpu")
    alone = World(rank=0, local_rank=0, world_size=1, nodes=1, device=cpu, backend="gloo", data_group=None)
    assert Agreement(alone, 300.0).exchange([15, 1]) == [15, 1]
