import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.config.scaling import BatchPlan
from trainer.data.batches.sampling import Epoch


def _epoch(images: int, ranks: int, per_rank: int, *, epoch: int = 0, first_step: int = 0) -> list[list[torch.Tensor]]:
    plan = BatchPlan(world_size=ranks, accumulate=1, micro_batch=per_rank)
    places = [Epoch(plan=plan, rank=rank, seed=3, number=epoch, first_step=first_step) for rank in range(ranks)]
    orders = [torch.randperm(images, generator=place.generator()) for place in places]
    return [list(place.mine(order).split(per_rank)) for place, order in zip(places, orders, strict=True)]


@given(per_part=st.integers(1, 5), ranks=st.sampled_from([2, 3, 4, 6]), extra=st.integers(0, 200))
def test_every_step_sees_the_same_images_for_any_number_of_ranks(per_part: int, ranks: int, extra: int) -> None:
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


def test_seeds_share_no_epochs() -> None:
    plan = BatchPlan(world_size=1, accumulate=1, micro_batch=1)
    orders = [
        torch.randperm(1000, generator=Epoch(plan=plan, rank=0, seed=seed, number=number).generator()).tolist()
        for seed in range(4)
        for number in range(4)
    ]
    assert len({tuple(order) for order in orders}) == 16


def test_epochs_differ_and_can_be_entered_in_the_middle() -> None:
    whole = _epoch(100, 2, 5)[1]
    assert [part.tolist() for part in _epoch(100, 2, 5, first_step=4)[1]] == [part.tolist() for part in whole[4:]]
    assert torch.cat(_epoch(100, 2, 5, epoch=1)[1]).tolist() != torch.cat(whole).tolist()
