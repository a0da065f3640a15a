from torch import nn

from trainer.config.run_config import parse
from trainer.model.optimizers import build


def test_biases_learn_faster_and_decay_slower() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.BatchNorm2d(2), nn.Linear(2, 2))
    config = parse(["--model", "small-cnn", "--bias-lr-scale", "64", "--weight-decay", "0.64"], {}).optimization
    weights, biases = build(config, model, 0.5).param_groups
    assert (weights["peak_lr"], weights["weight_decay"]) == (0.5, 0.64)
    assert (biases["peak_lr"], biases["weight_decay"]) == (32.0, 0.01)
    assert {id(parameter) for parameter in biases["params"]} == {id(model[1].bias), id(model[2].bias)}


def test_what_is_not_trained_is_not_the_optimizers() -> None:
    model = nn.Linear(2, 2)
    model.weight.requires_grad = False
    (group,) = build(parse(["--model", "small-cnn", "--optimizer", "adamw"], {}).optimization, model, 0.1).param_groups
    assert [parameter is model.bias for parameter in group["params"]] == [True]
