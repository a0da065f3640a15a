import pytest
import torch

from trainer import models
from trainer.config import MODELS
from trainer.scaling import REFERENCE_LR


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("channels", "size"), [(1, 28), (3, 32)])
def test_every_model_takes_both_kinds_of_pictures(name: str, channels: int, size: int) -> None:
    model = models.build(name, channels=channels, size=size, classes=10)
    assert model(torch.randn(2, channels, size, size)).shape == (2, 10)
    assert (name, "sgd") in REFERENCE_LR and (name, "adamw") in REFERENCE_LR


def test_the_tutorial_network_has_the_published_size() -> None:
    model = models.build("tutorial-cnn", channels=3, size=32, classes=10)
    assert sum(parameter.numel() for parameter in model.parameters()) == 62_006
