import re

import pytest
import torch

from trainer.config.flags import MODELS
from trainer.config.scaling import REFERENCE_LR
from trainer.errors import UserError
from trainer.model import models


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("channels", "size"), [(1, 28), (3, 32)])
def test_every_model_takes_both_kinds_of_images(name: str, channels: int, size: int) -> None:
    model = models.build(name, channels=channels, size=size, classes=10)
    assert model(torch.randn(2, channels, size, size)).shape == (2, 10)
    assert (name, "sgd") in REFERENCE_LR and (name, "adamw") in REFERENCE_LR


def test_the_tutorial_network_has_the_published_size() -> None:
    model = models.build("tutorial-cnn", channels=3, size=32, classes=10)
    assert sum(parameter.numel() for parameter in model.parameters()) == 62_006


def test_whitened_patches_have_no_correlation() -> None:
    generator = torch.Generator().manual_seed(0)
    smooth = torch.nn.functional.avg_pool2d(torch.randn(64, 3, 34, 34, generator=generator), 3, stride=1)
    model = models.AirbenchCNN(3, 10)
    model.whiten(smooth)
    with torch.no_grad():
        answers = model.whiten_conv(smooth) - model.whiten_conv.bias.view(1, -1, 1, 1)
    half = answers.shape[1] // 2
    rows = answers[:, :half].permute(0, 2, 3, 1).reshape(-1, half)
    torch.testing.assert_close(answers[:, half:], -answers[:, :half])
    # Variances below the epsilon stay below 1; the others are 1, and none goes with another.
    covariance = rows.T @ rows / len(rows)
    torch.testing.assert_close(covariance, torch.eye(half), atol=0.1, rtol=0)


def test_an_airbench_group_begins_by_passing_its_channels_on() -> None:
    convolution = models.AirbenchCNN(3, 10).features[1][0]
    images = torch.randn(1, 24, 5, 5)
    torch.testing.assert_close(convolution(images)[:, :24], images)


@pytest.mark.parametrize("name", ["tutorial-cnn", "airbench-cnn"])
def test_images_too_small_for_a_model_are_refused_before_training(name: str) -> None:
    with pytest.raises(UserError, match=re.escape(f"{name} can't take images of 8 x 8 pixels")) as caught:
        models.build(name, channels=3, size=8, classes=10)
    assert caught.value.exit_code == 2


def test_large_images_are_whitened_from_a_few() -> None:
    asked: list[int] = []

    class Train:
        def __len__(self) -> int:
            return 10_000

        def example(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
            asked.append(count)
            return torch.randn(4, 3, 8, 8), torch.zeros(4, dtype=torch.int64)

        def epoch(self, epoch: object) -> object:
            raise AssertionError

    model = models.AirbenchCNN(3, 10)
    models.fit_to_data(model, Train(), size=32)  # type: ignore[arg-type]  # it draws no epoch
    models.fit_to_data(model, Train(), size=224)  # type: ignore[arg-type]  # it draws no epoch
    assert asked[0] == 5000 and asked[1] * 224**2 <= 5000 * 32**2
