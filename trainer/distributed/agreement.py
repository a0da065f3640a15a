"""How all ranks agree to act at the same step."""

import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainer.distributed.world import World

PERIOD = 0.1
"""Seconds between two exchanges: each wakes Gloo's threads, for which ranks with one core have no time to spare."""
MOST_STEPS = 50
"""The most steps between two exchanges, however fast they were: the next ones may be slow."""


def agree(world: World, requests: list[int]) -> list[int]:
    """Return the maximum of all ranks' requests, at once; a collective."""
    if world.world_size == 1:
        return requests
    flags = torch.tensor(requests)
    dist.all_reduce(flags, op=dist.ReduceOp.MAX)
    return [int(flag) for flag in flags]


class Agreement:
    """Lets all ranks learn at the same step what any of them requests, a fraction of a second later.

    The maximum of all ranks' requests is computed in the background, during the next step. Each rank also sends how
    many steps it takes in `PERIOD`; the maximum is the number of steps until the next exchange.
    """

    def __init__(self, world: World, timeout: float) -> None:
        self._world = world
        self._timeout = timedelta(seconds=timeout)
        self._pending: tuple[Any, Tensor] | None = None
        self._requests: list[int] = []
        self._interval = 1
        self._steps = 0
        self._since = time.monotonic()

    def exchange(self, requests: list[int]) -> list[int]:
        """Take this step's requests, return what all agreed on in the previous one, mostly zeros; a collective."""
        if self._world.world_size == 1:
            return requests
        agreed = self._answer() or [0] * len(requests)
        self._requests = [max(pair) for pair in zip(self._requests or requests, requests, strict=True)]
        self._steps += 1
        if self._steps >= self._interval:
            self._send()
        return agreed

    def _send(self) -> None:
        now = time.monotonic()
        pace = int(PERIOD * self._steps / max(now - self._since, 1e-9))
        flags = torch.tensor([*self._requests, min(max(pace, 1), MOST_STEPS)])
        self._pending = (dist.all_reduce(flags, op=dist.ReduceOp.MAX, async_op=True), flags)
        self._requests, self._steps, self._since = [], 0, now

    def _answer(self) -> list[int] | None:
        if self._pending is None:
            return None
        work, flags = self._pending
        work.wait(self._timeout)
        self._pending = None
        *agreed, self._interval = (int(flag) for flag in flags)
        return agreed

    def finish(self) -> None:
        """Wait for the exchange that is still under way, before the groups are closed."""
        self._answer()
