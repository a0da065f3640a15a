"""How all ranks come to act at the same step."""

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainer.distributed import World


class Agreement:
    """Lets all ranks learn at the same step what any of them wishes, at the price of one step's delay.

    The maximum of all ranks' wishes is taken in the background while the next step computes.
    """

    def __init__(self, world: World, timeout: float) -> None:
        self._world = world
        self._timeout = timedelta(seconds=timeout)
        self._pending: tuple[Any, Tensor] | None = None

    def exchange(self, wishes: list[int]) -> list[int]:
        """Sends this step's wishes, returns the maximum of those sent a step ago (zeros at first); a collective."""
        if self._world.world_size == 1:
            return wishes
        previous, flags = self._pending, torch.tensor(wishes)
        self._pending = (dist.all_reduce(flags, op=dist.ReduceOp.MAX, async_op=True), flags)
        if previous is None:
            return [0] * len(wishes)
        previous[0].wait(self._timeout)
        return [int(wish) for wish in previous[1]]

    def finish(self) -> None:
        """Waits for what is still under way, before the groups are closed."""
        if self._pending is not None:
            self._pending[0].wait(self._timeout)
            self._pending = None
