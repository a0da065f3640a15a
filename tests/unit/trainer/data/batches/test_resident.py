"""Images in memory: batches equal those of a loop over single images."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from trainer.config.scaling import BatchPlan
from trainer.data.batches.augment import Augmentation, Draws, Windows, cut_out, draw
from trainer.data.batches.resident import NOTHING_DRAWN, Resident
from trainer.data.batches.sampling import Epoch

CPU = torch.device("cpu")


def _pixels(count: int, channels: int, height: int = 6, width: int = 5) -> Tensor:
    return torch.randint(
        0, 256, (count, channels, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )


def _resident(images: Tensor, augmentation: Augmentation | None = None, seed: int = 0) -> Resident:
    channels = images.shape[1]
    return Resident(
        images,
        torch.arange(len(images)),
        mean=[0.0] * channels,
        std=[1 / 255] * channels,  # so that batches hold the bytes' own values
        device=CPU,
        memory_format=torch.channels_last,
        augmentation=augmentation,
        seed=seed,
    )


def _epoch(number: int = 0, *, ranks: int = 1, rank: int = 0, per_rank: int = 4, first_step: int = 0) -> Epoch:
    plan = BatchPlan(world_size=ranks, accumulate=1, micro_batch=per_rank)
    return Epoch(plan=plan, rank=rank, seed=1, number=number, first_step=first_step)


def _batches(resident: Resident, epoch: Epoch) -> list[tuple[Tensor, Tensor]]:
    return [(images.clone(), labels.clone()) for images, labels in resident.epoch(epoch)]


def test_batches_are_normalized_per_channel() -> None:
    images = _pixels(50, 3)
    values = images.double() / 255
    mean, std = values.mean((0, 2, 3)), values.std((0, 2, 3))
    for memory_format in (torch.contiguous_format, torch.channels_last):
        resident = Resident(
            images,
            torch.arange(50),
            mean=mean.tolist(),
            std=std.tolist(),
            device=CPU,
            memory_format=memory_format,
        )
        batch, labels = resident.batch(torch.arange(50).flip(0), NOTHING_DRAWN)
        expected = (values.flip(0) - mean.view(1, 3, 1, 1)) / std.view(1, 3, 1, 1)
        assert batch.dtype == torch.float32 and labels.tolist() == list(range(49, -1, -1))
        assert batch.is_contiguous(memory_format=memory_format)
        torch.testing.assert_close(batch.double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("shift", [0, 2])
def test_windows_are_crops_of_the_padded_image(channels: int, mirrored: bool, shift: int) -> None:
    images = _pixels(9, channels)
    windows = Windows(images, shift=shift, mirrored=mirrored, device=CPU)
    generator = torch.Generator().manual_seed(4)
    indices = torch.tensor([8, 0, 3, 3, 7])
    corner = torch.randint(2 * shift + 1, (5, 2), generator=generator)
    flipped = torch.tensor([True, False, True, False, True]) if mirrored else None
    taken = windows.take(indices, corner if shift else None, flipped)
    for place, index in enumerate(indices.tolist()):
        image = pad(images[index], (shift,) * 4)
        if flipped is not None and flipped[place]:
            image = image.flip(-1)
        row, column = corner[place].tolist()
        assert torch.equal(taken[place], image[:, row : row + 6, column : column + 5])


def test_the_last_window_ends_with_the_memory() -> None:
    images = _pixels(3, 1)
    windows = Windows(images, shift=1, mirrored=True, device=CPU)
    taken = windows.take(torch.tensor([2]), torch.tensor([[2, 2]]), torch.tensor([True]))
    assert torch.equal(taken[0], pad(images[2], (1, 1, 1, 1)).flip(-1)[:, 2:, 2:])


def test_a_cutout_blanks_a_square_and_nothing_else() -> None:
    images = torch.ones(3, 2, 6, 5)
    cut_out(images, torch.tensor([[0, 0], [3, 2], [5, 4]]), 3)
    blank = images == 0
    assert [int(count) for count in blank[:, 0].sum((1, 2))] == [4, 9, 4]  # at the corners a part of it
    assert blank[1, 0, 2:5, 1:4].all() and torch.equal(blank[:, 0], blank[:, 1])


def test_alternating_flips_show_both_sides_in_two_epochs() -> None:
    images = _pixels(40, 1)
    resident = _resident(images, Augmentation(flip="alternate"))
    sides = []
    for number in range(4):
        seen = torch.zeros(40, dtype=torch.bool)
        for batch, labels in _batches(resident, _epoch(number)):
            for image, index in zip(batch, labels.tolist(), strict=True):
                mirrored = torch.equal(image.byte(), images[index].flip(-1))
                assert mirrored or torch.equal(image.byte(), images[index])
                seen[index] = mirrored
        sides.append(seen)
    assert torch.equal(sides[0], ~sides[1]) and torch.equal(sides[0], sides[2]) and torch.equal(sides[1], sides[3])
    assert 8 < int(sides[0].sum()) < 32


def test_random_flips_are_drawn_anew() -> None:
    everything = Augmentation(flip="random")
    draws = [
        draw(
            everything,
            torch.arange(200),
            size=(6, 5),
            epoch=0,
            first_flips=torch.zeros(200, dtype=torch.bool),
            generator=torch.Generator().manual_seed(seed),
        ).flipped
        for seed in (0, 1)
    ]
    first, second = draws
    assert first is not None and second is not None
    assert not torch.equal(first, second) and 60 < int(first.sum()) < 140


def test_all_ranks_together_see_what_one_rank_sees() -> None:
    everything = Augmentation(shift=2, flip="random", cutout=2)
    resident = _resident(_pixels(50, 3), everything)
    alone = _batches(resident, _epoch(3, per_rank=12))
    ranks = [_batches(resident, _epoch(3, ranks=3, rank=rank, per_rank=4)) for rank in range(3)]
    assert len(alone) == len(ranks[0]) == 4
    for step, (images, labels) in enumerate(alone):
        for rank in range(3):
            assert torch.equal(ranks[rank][step][1], labels[rank::3])
            assert torch.equal(ranks[rank][step][0], images[rank::3])


def test_an_epoch_entered_in_the_middle_goes_on_as_it_would_have() -> None:
    resident = _resident(_pixels(50, 1), Augmentation(shift=1, flip="alternate", cutout=3))
    whole = _batches(resident, _epoch(1))
    rest = _batches(resident, _epoch(1, first_step=5))
    assert len(whole) == 12 and len(rest) == 7
    for (images, labels), (again, their_labels) in zip(whole[5:], rest, strict=True):
        assert torch.equal(images, again) and torch.equal(labels, their_labels)


def test_images_are_evaluated_as_they_are() -> None:
    images = _pixels(7, 1)
    resident = _resident(images, Augmentation(shift=2, flip="alternate", cutout=4))
    ((batch, labels),) = list(resident.share(1, 3, 7))
    assert labels.tolist() == [1, 4] and torch.equal(batch.byte(), images[[1, 4]])
    example, _ = resident.example(10)  # more than there are
    assert torch.equal(example[7:].byte(), images[:3])


def test_ranks_beyond_the_last_image_have_none_to_evaluate() -> None:
    resident = _resident(_pixels(2, 1))
    seen = [labels.tolist() for rank in range(4) for _, labels in resident.share(rank, 4, 1)]
    assert [label for part in seen for label in part] == [0]


def test_a_batch_made_in_an_evaluation_does_not_spoil_training() -> None:
    resident = _resident(_pixels(8, 1))
    weight = torch.ones(1, requires_grad=True)
    with torch.inference_mode():
        resident.batch(torch.arange(4), NOTHING_DRAWN)
    images, _ = resident.batch(torch.arange(4), Draws(corner=None, flipped=None, hole=None))
    (images * weight).sum().backward()
    assert weight.grad is not None
