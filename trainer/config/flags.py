"""The trainer's flags. Free of torch, so that the launcher can check arguments before anything starts."""

import argparse
import difflib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from trainer.config.model_names import TORCHVISION_MODELS
from trainer.config.recipes import RECIPES, chosen
from trainer.errors import UserError

PUBLISHED_DATASETS = ("fashion-mnist", "cifar10")
"""The keys of `CATALOG` in `trainer/data/published/catalog.py`, which needs NumPy; a test checks that they agree."""
DATASETS = (*PUBLISHED_DATASETS, "synthetic", "folder")
FOLDER_DEFAULTS = {"model": "resnet18", "flip": "random"}
"""What fits photographs, in place of the parser's own defaults."""
MODELS = ("small-cnn", "tutorial-cnn", "fast-cnn", "fast-cnn-wide", "airbench-cnn", "resnet18")
"""Our models; torchvision's have their names there."""
MAX_INTEGER = 2**31 - 1
"""Largest count or seed accepted: every consumer (NumPy, NCCL, index tensors) takes at least this."""
LEAST_EDGE, MOST_EDGE = 8, 4096
"""Pixels that a folder's images may be cropped to."""
MOST_WORKERS = 1024
"""Processes of one rank."""


class Parser(argparse.ArgumentParser):
    """Reports bad arguments as UserError(2)."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (all flags: python -m {self.prog} --help)", exit_code=2)


def whole(least: int, most: int = MAX_INTEGER) -> Callable[[str], int]:
    """Return a converter to whole numbers between these two."""

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return value

    return convert


def _real(allowed: str, accepts: Callable[[float], bool]) -> Callable[[str], float]:
    def convert(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and accepts(value)):
            raise argparse.ArgumentTypeError(f"{text!r} is not a number {allowed}")
        return value

    return convert


def _path(text: str) -> Path:
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not a path")
    return Path(text)


def exists(path: str) -> bool:
    """Return whether something exists at `path`, as far as this process may see."""
    try:
        return Path(path).exists()
    except OSError:  # the name is too long, or the folder may not be entered
        return False


def _model(text: str) -> str:
    known = dict.fromkeys((*MODELS, *TORCHVISION_MODELS))
    if text not in known:
        close = difflib.get_close_matches(text, known, n=3) or MODELS
        raise argparse.ArgumentTypeError(f"no model is called {text!r}; there are {', '.join(close)} and more")
    return text


def _workers(text: str) -> int | None:
    return None if text == "auto" else whole(0, MOST_WORKERS)(text)


_positive = _real("above 0", lambda value: value > 0)
_fraction = _real("from 0 to below 1", lambda value: 0 <= value < 1)
_not_negative = _real("of 0 or more", lambda value: value >= 0)


def parser() -> argparse.ArgumentParser:
    """Return the parser of all flags, in groups."""
    parser = Parser(prog="trainer", description="Trains a model on images, on any number of ranks.", allow_abbrev=False)
    data = parser.add_argument_group("data and model")
    data.add_argument("--dataset", choices=DATASETS, default="fashion-mnist")
    data.add_argument("--data-dir", type=_path, help="where fetched data is kept (default $DATA_DIR, else ./data)")
    data.add_argument("--data", type=_path, help="your own copy of the data set (default $RINGMASTER_DATA)")
    data.add_argument("--other-data", action="store_true", help="that copy is meant to differ from the published set")
    data.add_argument(
        "--recipe",
        choices=("auto", "none", *RECIPES),
        default="auto",
        help="tuned defaults for all other flags (default auto: the data set's own, unless --model is given)",
    )
    data.add_argument(
        "--model",
        type=_model,
        metavar="NAME",
        default="small-cnn",
        help=f"ours: {', '.join(MODELS)}; or one of torchvision's: {', '.join(TORCHVISION_MODELS)}",
    )
    _add_folder_flags(parser.add_argument_group("image folders (--dataset folder)"))
    steps = parser.add_argument_group("training")
    steps.add_argument("--epochs", type=whole(1), default=4)
    steps.add_argument("--max-steps", type=whole(1), help="end after this many optimizer steps")
    steps.add_argument("--batch-size", type=whole(1), default=256, help="images per step, all ranks (default 256)")
    steps.add_argument("--accumulate", type=whole(1), default=1, help="passes per optimizer step")
    steps.add_argument("--lr", type=_positive, help="peak learning rate (default: the model's, scaled; printed)")
    steps.add_argument("--optimizer", choices=("sgd", "adamw"), default="sgd")
    steps.add_argument("--momentum", type=_fraction, default=0.9)
    steps.add_argument("--weight-decay", type=_not_negative)
    steps.add_argument("--bias-lr-scale", type=_positive, default=1.0, help="biases learn this many times faster")
    steps.add_argument("--schedule", choices=("triangular", "cosine", "constant"), default="triangular")
    steps.add_argument("--warmup", type=_real("from 0 to 1", lambda value: 0 <= value <= 1), default=0.2)
    steps.add_argument("--clip-norm", type=_positive)
    steps.add_argument("--seed", type=whole(0), default=0)
    steps.add_argument("--deterministic", action="store_true", help="bit-wise repeatable on the same devices, slower")
    _add_augmentation_flags(parser.add_argument_group("augmentation"))
    _add_machine_flags(parser.add_argument_group("ranks and devices"))
    _add_result_flags(parser.add_argument_group("evaluation, checkpoints, files"))
    return parser


def _add_folder_flags(folder: argparse._ArgumentGroup) -> None:
    folder.description = (
        "--data PATH with train/<class>/*.jpg and val/<class>/*.jpg (also .jpeg, .png); "
        "here the default model is resnet18, and images are mirrored at random"
    )
    folder.add_argument(
        "--image-size",
        type=whole(LEAST_EDGE, MOST_EDGE),
        default=224,
        metavar="N",
        help="edge of the crops (default 224)",
    )
    folder.add_argument(
        "--crop",
        choices=("resized", "random"),
        default="resized",
        help="training crops: of random size, resized (default), or of N x N pixels as they are",
    )
    folder.add_argument(
        "--workers",
        type=_workers,
        metavar="auto|N",
        help="processes that read images, per rank (default auto: found by trials)",
    )
    folder.add_argument(
        "--decode", choices=("auto", "cpu", "gpu"), default="auto", help="auto: on a GPU if CPU cores are few"
    )


def _add_augmentation_flags(augmentation: argparse._ArgumentGroup) -> None:
    augmentation.add_argument("--shift", type=whole(0), default=0, help="random crops, shifted by up to N pixels")
    augmentation.add_argument("--flip", choices=("none", "random", "alternate"), default="none", help="mirror images")
    augmentation.add_argument("--cutout", type=whole(0), default=0, help="blank a square of N pixels")
    augmentation.add_argument("--label-smoothing", type=_fraction, default=0.0)
    augmentation.add_argument("--mixup", type=_not_negative, default=0.0, help="mix pairs, weighted by Beta(X, X)")
    augmentation.add_argument("--cutmix", type=_not_negative, default=0.0, help="cut and paste, sized by Beta(X, X)")
    augmentation.add_argument("--tta", choices=("none", "flip"), default="none", help="evaluate on mirror images too")


def _add_machine_flags(ranks: argparse._ArgumentGroup) -> None:
    ranks.add_argument("--strategy", choices=("none", "dp", "ddp"), default="ddp")
    ranks.add_argument(
        "--scaling",
        choices=("strong", "weak"),
        default="strong",
        help="with more ranks: strong = same global batch, weak = --batch-size images for each rank",
    )
    ranks.add_argument("--backend", choices=("auto", "nccl", "gloo"), default="auto")
    ranks.add_argument("--precision", choices=("auto", "fp32", "bf16", "fp16"), default="auto")
    ranks.add_argument("--channels-last", action=argparse.BooleanOptionalAction, default=True)
    ranks.add_argument(
        "--compile",
        nargs="?",
        choices=("auto", "on", "off", "graphs"),
        const="on",
        default="auto",
        help="torch.compile; auto (default): on a GPU, if it pays; graphs: with CUDA graphs",
    )
    ranks.add_argument(
        "--bind", choices=("auto", "none"), default="auto", help="give ranks on one machine cores of their own"
    )
    ranks.add_argument("--timeout", type=_positive, default=300.0, help="seconds a collective may take (default 300)")


def _add_result_flags(results: argparse._ArgumentGroup) -> None:
    results.add_argument("--eval-steps", type=whole(0), default=0, help="evaluate every N steps too")
    results.add_argument("--max-val-items", type=whole(1), help="evaluate on the first N test images only")
    results.add_argument("--resume", default="auto", metavar="auto|none|PATH", help="checkpoint or folder of them")
    results.add_argument("--checkpoint-seconds", type=_positive, default=30.0)
    results.add_argument("--checkpoint-steps", type=whole(1), help="a checkpoint every N steps instead")
    results.add_argument("--keep", type=whole(1), default=3, help="newest checkpoints kept, besides the best")
    results.add_argument("--run-dir", type=_path, help="default $RUN_DIR, else runs/<time>")
    results.add_argument("--debug", action="store_true", help="tracebacks instead of one-line errors")


def values(argv: Sequence[str]) -> dict[str, Any]:
    """Return the flags' values: the user's, then the recipe's, then the parser's own.

    Raises:
        UserError: exit code 2, for arguments that the parser refuses.
    """
    known = parser()
    # Only a flag on the command line replaces a value of the namespace.
    arguments = known.parse_args(list(argv), argparse.Namespace(dataset=None, model=None))
    dataset = arguments.dataset or known.get_default("dataset")
    recipe = chosen(arguments.recipe, dataset=dataset, model_given=arguments.model is not None)
    if recipe is not None:
        known.set_defaults(dataset=RECIPES[recipe].dataset, **RECIPES[recipe].flags)
    elif dataset == "folder":
        known.set_defaults(**FOLDER_DEFAULTS)
    return {**vars(known.parse_args(list(argv))), "recipe": recipe}
