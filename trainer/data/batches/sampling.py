"""The sampler: which images an epoch's steps see, in which order, for any number of ranks."""

import zlib
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.config.scaling import BatchPlan


def generator(*purpose: str | int) -> torch.Generator:
    """Return a generator of its own for each purpose, seed and epoch: runs with seeds 0 and 1 share nothing."""
    return torch.Generator().manual_seed(zlib.crc32(repr(purpose).encode()))


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """One rank's part of one epoch. Every draw follows from seed and number, so an epoch can be entered anywhere."""

    plan: BatchPlan
    rank: int
    seed: int
    number: int
    """From 0."""
    first_step: int = 0
    """Steps before it are skipped; 0 = none."""

    def steps(self, images: int) -> int:
        """Return the optimizer steps of a whole epoch over this many training images."""
        return images // self.plan.global_batch

    def generator(self) -> torch.Generator:
        """Return a generator: the same numbers on every rank, different ones in every epoch."""
        return generator("epoch", self.seed, self.number)

    def mine(self, drawn: Tensor) -> Tensor:
        """Return this rank's part, from `first_step` on, of the draws for each place in the epoch's order, (N, …).

        Ranks take turns in one order, so step s sees the same images whatever the number of ranks: those at places
        s * global_batch .. (s + 1) * global_batch - 1. The rest that doesn't fill a global batch is left out.
        """
        plan = self.plan
        whole = drawn[: self.steps(len(drawn)) * plan.global_batch]
        return whole[self.rank :: plan.world_size][self.first_step * plan.per_rank :]
