"""Recipes are defaults: the user's flags win."""

from dataclasses import asdict
from typing import Any

import pytest

from trainer.config.recipes import RECIPES, chosen
from trainer.config.run_config import Config, parse
from trainer.errors import UserError


def flat(config: Config) -> dict[str, Any]:
    sections = [section for section in asdict(config).values() if isinstance(section, dict)]
    values = {name: value for section in sections for name, value in section.items()}
    return {**values, "model": config.model, "seed": config.seed}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_gives_what_is_not_given(name: str) -> None:
    config = parse(["--recipe", name], {})
    assert config.recipe == name and config.data.dataset == RECIPES[name].dataset
    values = flat(config)
    for flag, value in RECIPES[name].flags.items():
        assert values[flag] == value


def test_everything_explicit_wins() -> None:
    flags = ["--epochs", "3", "--label-smoothing", "0", "--model", "small-cnn", "--flip", "none"]
    config = parse(["--recipe", "cifar10", "--dataset", "fashion-mnist", *flags], {})
    assert (config.data.dataset, config.model, config.training.epochs) == ("fashion-mnist", "small-cnn", 3)
    assert (config.loss.label_smoothing, config.augmentation.flip, config.optimization.momentum) == (0, "none", 0.85)


def test_a_flag_that_is_given_its_usual_value_is_given_too() -> None:
    assert parse(["--recipe", "fashion-mnist", "--flip", "none"], {}).augmentation.flip == "none"


@pytest.mark.parametrize(
    ("wanted", "dataset", "model_given", "expected"),
    [
        ("auto", "fashion-mnist", False, "fashion-mnist"),
        ("auto", "fashion-mnist", True, None),
        ("auto", "synthetic", False, None),
        ("none", "fashion-mnist", False, None),
        ("cifar10", "fashion-mnist", True, "cifar10"),
    ],
)
def test_which_recipe_is_meant(wanted: str, dataset: str, model_given: bool, expected: str | None) -> None:
    assert chosen(wanted, dataset=dataset, model_given=model_given) == expected


def test_without_a_recipe_nothing_is_smoothed_or_mirrored() -> None:
    config = parse(["--model", "resnet18"], {})
    assert (config.recipe, config.loss.label_smoothing) == (None, 0.0)
    assert (config.augmentation.flip, config.evaluation.tta) == ("none", "none")


def test_an_unknown_recipe_is_refused_with_those_there_are() -> None:
    with pytest.raises(UserError, match="cifar10") as caught:
        parse(["--recipe", "imagenet"], {})
    assert caught.value.exit_code == 2
