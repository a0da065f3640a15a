import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.batches import Pictures, epoch_batches
from trainer.scaling import BatchPlan

CPU = torch.device("cpu")


def _epoch(images: int, ranks: int, per_rank: int, *, epoch: int = 0, first_step: int = 0) -> list[list[torch.Tensor]]:
    plan = BatchPlan(world_size=ranks, accumulate=1, micro_batch=per_rank)
    return [
        list(epoch_batches(images, plan, rank=rank, seed=3, epoch=epoch, first_step=first_step, device=CPU))
        for rank in range(ranks)
    ]


@given(per_part=st.integers(1, 5), ranks=st.sampled_from([2, 3, 4, 6]), extra=st.integers(0, 200))
def test_every_step_sees_the_same_pictures_for_any_number_of_ranks(per_part: int, ranks: int, extra: int) -> None:
    batch = 12 * per_part
    images = batch + extra
    alone = _epoch(images, 1, batch)[0]
    together = _epoch(images, ranks, batch // ranks)
    assert len(alone) == images // batch == len(together[0])
    for step, whole in enumerate(alone):
        parts = torch.cat([rank[step] for rank in together])
        assert sorted(parts.tolist()) == sorted(whole.tolist())
    seen = torch.cat(alone).tolist()
    assert len(set(seen)) == len(seen)


def test_epochs_differ_and_can_be_entered_in_the_middle() -> None:
    whole = _epoch(100, 2, 5)[1]
    assert [part.tolist() for part in _epoch(100, 2, 5, first_step=4)[1]] == [part.tolist() for part in whole[4:]]
    assert torch.cat(_epoch(100, 2, 5, epoch=1)[1]).tolist() != torch.cat(whole).tolist()


def test_batches_are_normalized_per_channel() -> None:
    images = torch.randint(0, 256, (50, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    values = images.double() / 255
    mean, std = values.mean((0, 2, 3)), values.std((0, 2, 3))
    pictures = Pictures(images, torch.arange(50), mean=mean.tolist(), std=std.tolist(), device=CPU)
    batch, labels = pictures.batch(torch.arange(50).flip(0))
    expected = (values.flip(0) - mean.view(1, 3, 1, 1)) / std.view(1, 3, 1, 1)
    assert batch.dtype == torch.float32 and labels.tolist() == list(range(49, -1, -1))
    torch.testing.assert_close(batch.double(), expected, rtol=0, atol=1e-5)
