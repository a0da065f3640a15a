"""How all ranks come to act at the same step."""

import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainer.distributed.world import World

PERIOD = 0.1
"""Seconds between two exchanges: each wakes Gloo's threads, for which ranks of one core each have no time to spare."""
MOST_STEPS = 50
"""Steps between two exchanges at most, however fast they were: the next ones may be slow."""


class Agreement:
    """Lets all ranks learn at the same step what any of them wishes, a fraction of a second later.

    The maximum of all ranks' wishes is taken in the background while the next step computes. With it goes how many
    steps each rank does in `PERIOD`, and the maximum of that is how long all of them wait until they exchange again.
    """

    def __init__(self, world: World, timeout: float) -> None:
        self._world = world
        self._timeout = timedelta(seconds=timeout)
        self._pending: tuple[Any, Tensor] | None = None
        self._wishes: list[int] = []
        self._interval = 1
        self._steps = 0
        self._since = time.monotonic()

    def exchange(self, wishes: list[int]) -> list[int]:
        """Takes this step's wishes, returns what all agreed on in the step before, mostly zeros; a collective."""
        if self._world.world_size == 1:
            return wishes
        agreed = self._answer() or [0] * len(wishes)
        self._wishes = [max(pair) for pair in zip(self._wishes or wishes, wishes, strict=True)]
        self._steps += 1
        if self._steps >= self._interval:
            self._send()
        return agreed

    def _send(self) -> None:
        now = time.monotonic()
        pace = int(PERIOD * self._steps / max(now - self._since, 1e-9))
        flags = torch.tensor([*self._wishes, min(max(pace, 1), MOST_STEPS)])
        self._pending = (dist.all_reduce(flags, op=dist.ReduceOp.MAX, async_op=True), flags)
        self._wishes, self._steps, self._since = [], 0, now

    def _answer(self) -> list[int] | None:
        if self._pending is None:
            return None
        work, flags = self._pending
        work.wait(self._timeout)
        self._pending = None
        *agreed, self._interval = (int(wish) for wish in flags)
        return agreed

    def finish(self) -> None:
        """Waits for what is still under way, before the groups are closed."""
        self._answer()
