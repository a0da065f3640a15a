"""torchvision's models by name."""

import pytest
import torch
import torchvision
from torch import nn

from trainer.config.model_names import TORCHVISION_MODELS
from trainer.config.run_config import parse
from trainer.config.scaling import learning_rate
from trainer.errors import UserError
from trainer.model import models


def test_the_list_of_names_is_torchvisions() -> None:
    there = torchvision.models.list_models(module=torchvision.models)
    assert sorted(TORCHVISION_MODELS) == sorted(there)


@pytest.mark.parametrize(
    ("name", "channels", "size"),
    [
        ("resnet18", 1, 28),
        ("mobilenet_v3_small", 1, 64),
        ("googlenet", 3, 32),  # its training mode would return three results
        ("vit_b_32", 1, 64),
        ("regnet_y_400mf", 3, 64),  # reads its tensors while it is made
    ],
)
def test_they_take_other_sizes_and_channels(name: str, channels: int, size: int) -> None:
    model = models.build(name, channels=channels, size=size, classes=7)
    assert model.training
    assert model(torch.randn(2, channels, size, size)).shape == (2, 7)


@pytest.mark.parametrize(("name", "size"), [("vit_b_16", 28), ("alexnet", 28), ("maxvit_t", 64), ("inception_v3", 64)])
def test_a_size_that_a_model_cant_take_is_refused(name: str, size: int) -> None:
    with pytest.raises(UserError, match=f"--model: {name} can't take images of {size} x {size} pixels") as raised:
        models.build(name, channels=3, size=size, classes=10)
    assert raised.value.exit_code == 2


def test_the_trial_leaves_generator_and_averages_alone() -> None:
    torch.manual_seed(0)
    model = models.build("mobilenet_v2", channels=3, size=32, classes=10)
    after = torch.rand(())
    torch.manual_seed(0)
    torchvision.models.mobilenet_v2(num_classes=10)
    assert torch.rand(()) == after, "only the making draws numbers"
    norms = [part for part in model.modules() if isinstance(part, nn.BatchNorm2d)]
    assert norms
    assert all(norm.running_mean.count_nonzero() == 0 and norm.num_batches_tracked == 0 for norm in norms)


@pytest.mark.parametrize(("size", "kernel"), [(32, 3), (64, 7)])
def test_resnets_have_the_stem_for_the_size(size: int, kernel: int) -> None:
    model = models.build("resnet50", channels=3, size=size, classes=10)
    assert model.conv1.kernel_size == (kernel, kernel)
    assert isinstance(model.maxpool, nn.MaxPool2d) == (kernel == 7)


def test_the_learning_rate_of_an_untuned_model_is_said_to_be_a_usual_one() -> None:
    lr, rule = learning_rate(parse([], {}).optimization, "resnet50", 512)
    assert lr == pytest.approx(0.2)
    assert "not tuned for resnet50" in rule
    assert "not tuned" not in learning_rate(parse([], {}).optimization, "fast-cnn", 512)[1]
