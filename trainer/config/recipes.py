"""Tuned sets of flags, each with the accuracy it should reach. Flags on the command line take precedence."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Flags that go together, as `trainer.config.run_config` parses them."""

    dataset: str
    target: float
    """Test accuracy, 0..1, that the mean over seeds should reach."""
    flags: Mapping[str, Any]
    """Defaults in place of the parser's own, by the name of the flag (`--batch-size`: `batch_size`)."""


RECIPES = {
    # Tuned on 50,000 of the training images, judged on the other 10,000: docs/training.md says what was tried.
    "fashion-mnist": Recipe(
        dataset="fashion-mnist",
        target=0.925,
        flags={
            "model": "fast-cnn",
            "epochs": 8,
            "batch_size": 256,
            "label_smoothing": 0.1,
            "flip": "alternate",
        },
    ),
    # The same with more of everything, for GPUs; not measured yet.
    "fashion-mnist-94": Recipe(
        dataset="fashion-mnist",
        target=0.94,
        flags={
            "model": "fast-cnn-wide",
            "epochs": 16,
            "batch_size": 256,
            "label_smoothing": 0.1,
            "flip": "alternate",
            "tta": "flip",
        },
    ),
    # After airbench94 (Jordan 2024, arXiv:2404.00498, listing in its appendix): its peak rate of 11.5 per 1,024
    # images of summed loss is 1.5 for the mean loss of a batch of 1,024, and its decay 1.3e-3.
    "cifar10": Recipe(
        dataset="cifar10",
        target=0.94,
        flags={
            "model": "airbench-cnn",
            "epochs": 10,
            "batch_size": 1024,
            "momentum": 0.85,
            "weight_decay": 1.3e-3,
            "warmup": 0.23,
            "label_smoothing": 0.2,
            "bias_lr_scale": 64.0,
            "flip": "alternate",
            "shift": 2,
            "tta": "flip",
        },
    ),
}


def chosen(name: str, *, dataset: str, model_given: bool) -> str | None:
    """Return the recipe that `--recipe` means: `auto` is the data set's own, unless a model is requested."""
    if name != "auto":
        return None if name == "none" else name
    return dataset if dataset in RECIPES and not model_given else None
