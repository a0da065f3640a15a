"""Mixed images and labels."""

import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from trainer.model.loss import Loss

CLASSES = 5


def batch(size: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images filled with their label's number."""
    labels = torch.arange(size) % CLASSES
    return labels.float().view(-1, 1, 1, 1).expand(-1, 2, 9, 11).clone(), labels


def test_without_mixing_nothing_changes() -> None:
    images, labels = batch()
    mixed, targets = Loss(label_smoothing=0.1).mix(images, labels)
    assert mixed is images and targets is labels


@pytest.mark.parametrize("flags", [{"mixup": 0.4}, {"cutmix": 1.0}])
@pytest.mark.parametrize("seed", range(5))
def test_targets_are_the_shares_of_what_is_shown(flags: dict[str, float], seed: int) -> None:
    torch.manual_seed(seed)
    images, labels = batch()
    mixed, targets = Loss(classes=CLASSES, **flags).mix(images.clone(), labels)
    assert mixed.shape == images.shape and targets.shape == (8, CLASSES)
    torch.testing.assert_close(targets.sum(1), torch.ones(8))
    # An image's mean is its label's number, so the mixed one's must be that of its shares.
    torch.testing.assert_close(mixed.mean((1, 2, 3)), targets @ torch.arange(5.0))


def test_cutmix_cuts_and_mixup_mixes() -> None:
    torch.manual_seed(1)
    images, labels = batch()
    cut, _ = Loss(classes=CLASSES, cutmix=1.0).mix(images.clone(), labels)
    assert set(cut.unique().tolist()) == set(range(CLASSES))
    assert not torch.equal(cut, images)
    mixed, _ = Loss(classes=CLASSES, mixup=1.0).mix(images.clone(), labels)
    assert not torch.equal(mixed, mixed.round())


def test_with_both_each_batch_gets_one() -> None:
    torch.manual_seed(0)
    loss = Loss(classes=CLASSES, mixup=1.0, cutmix=1.0)
    cuts = sum(torch.equal(mixed, mixed.round()) for mixed in (loss.mix(*batch())[0] for _ in range(40)))
    assert 10 < cuts < 30


def test_the_draws_go_on_where_the_generator_was() -> None:
    """A checkpoint keeps this state of the generator."""
    loss = Loss(classes=CLASSES, mixup=0.2, cutmix=1.0)
    torch.manual_seed(3)
    loss.mix(*batch())
    state = torch.get_rng_state()
    wanted = [loss.mix(*batch()) for _ in range(3)]
    torch.set_rng_state(state)
    for images, targets in wanted:
        again = loss.mix(*batch())
        assert torch.equal(again[0], images) and torch.equal(again[1], targets)


def test_the_memory_order_stays() -> None:
    images, labels = batch()
    images = images.contiguous(memory_format=torch.channels_last)
    for flags in ({"mixup": 0.2}, {"cutmix": 1.0}):
        mixed, _ = Loss(classes=CLASSES, **flags).mix(images.clone(), labels)
        assert mixed.is_contiguous(memory_format=torch.channels_last)


def test_smoothing_holds_for_mixed_targets_too() -> None:
    logits, labels = torch.randn(4, CLASSES), torch.tensor([0, 1, 2, 3])
    loss = Loss(label_smoothing=0.2)
    wanted = cross_entropy(logits, labels, label_smoothing=0.2)
    torch.testing.assert_close(loss(logits, one_hot(labels, CLASSES).float()), wanted)
    torch.testing.assert_close(loss(logits.bfloat16(), labels), wanted, atol=0.05, rtol=0)
