"""Batches from a data set that lives on the device as bytes: no workers, no decoding, no copies from the host."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.utils.data import DistributedSampler

from trainer.scaling import BatchPlan


class Pictures:
    """Pictures and labels on one device, given out as normalized batches."""

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        device: torch.device,
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> None:
        """`images`: uint8 (N, C, H, W); `labels`: int64 (N,); `mean`, `std`: per channel, of values from 0 to 1."""
        self._images = images.to(device).contiguous(memory_format=memory_format)
        self._labels = labels.to(device)
        self._scale = (1 / (255 * torch.tensor(std))).view(1, -1, 1, 1).to(device)
        self._shift = -(torch.tensor(mean) / torch.tensor(std)).view(1, -1, 1, 1).to(device)

    def __len__(self) -> int:
        return len(self._labels)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """`indices`: int64 (B,) on the device. Returns float32 (B, C, H, W), about mean 0 and deviation 1, and (B,)."""
        images = self._images.index_select(0, indices)
        return torch.addcmul(self._shift, images, self._scale), self._labels.index_select(0, indices)


def epoch_batches(
    images: int, plan: BatchPlan, *, rank: int, seed: int, epoch: int, first_step: int, device: torch.device
) -> Iterator[Tensor]:
    """One rank's indices for each optimizer step of an epoch from `first_step` (0 = all of them) on, shape (per_rank,).

    Ranks take turns in one permutation, so step s sees the same pictures whatever the number of ranks: those at
    s * global_batch .. (s + 1) * global_batch - 1 of it. What doesn't fill a global batch is left out of the epoch.
    """
    sampler: DistributedSampler[int] = DistributedSampler(
        range(images),  # type: ignore[arg-type]  # only its length is used
        num_replicas=plan.world_size,
        rank=rank,
        seed=seed,
        drop_last=True,
    )
    sampler.set_epoch(epoch)
    indices = torch.tensor(list(sampler), dtype=torch.int64, device=device)
    steps = images // plan.global_batch
    return iter(torch.split(indices[: steps * plan.per_rank], plan.per_rank)[first_step:])
