"""What a run is asked to do. Free of torch, so that the launcher can check arguments before anything starts."""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from trainer.errors import UserError

DATASETS = ("fashion-mnist", "cifar10", "synthetic")
MODELS = ("small-cnn", "tutorial-cnn", "resnet18")
MAX_INTEGER = 2**31 - 1
"""Largest count or seed accepted: every consumer (NumPy, NCCL, index tensors) takes at least this."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """A checked request. `None` means "chosen at run time by the rule named here"."""

    dataset: str
    data_dir: Path
    own_copy: Path | None
    """The user's own copy of the data set, file or folder; None = fetch into `data_dir`."""
    run_dir: Path | None
    """None = runs/<time>, chosen by rank 0."""
    checkpoint_dir: Path | None
    """None = <run_dir>/checkpoints."""
    other_data: bool
    """The user's copy is meant to be another data set of that format, not a damaged one."""
    model: str
    epochs: int
    max_steps: int | None
    """Ends training after this many optimizer steps, if the epochs haven't before."""
    batch_size: int
    """Pictures per optimizer step: of all ranks together (strong scaling) or of each rank (weak)."""
    scaling: str
    lr: float | None
    """Peak learning rate; None = `scaling.learning_rate`."""
    optimizer: str
    momentum: float
    weight_decay: float | None
    """None = the reference of the optimizer, `scaling.WEIGHT_DECAY`."""
    schedule: str
    warmup: float
    """Fraction of all steps in which the learning rate rises to its peak, 0..1."""
    strategy: str
    backend: str
    precision: str
    channels_last: bool
    """Convolutions in (N, H, W, C) memory order: what tensor cores want, and up to twice as fast on CPUs."""
    accumulate: int
    """Forward/backward passes per optimizer step."""
    clip_norm: float | None
    """Largest global L2 norm of the gradients; None = no clipping."""
    seed: int
    deterministic: bool
    eval_steps: int
    """Evaluate every so many optimizer steps too; 0 = after each epoch only."""
    max_val_items: int | None
    """Evaluate on the first so many test pictures only."""
    resume: str
    checkpoint_seconds: float
    checkpoint_steps: int | None
    """Replaces `checkpoint_seconds` where given."""
    keep: int
    compile: bool
    timeout: float
    """Seconds after which a collective that a rank doesn't join fails."""
    debug: bool
    job: str | None
    """Name given by a launcher, which then writes the summary and the report; None = the trainer writes them."""
    planned_gpus: int
    """GPUs of this node that the launcher counts on; 0 where the user's own `--backend gloo` does without."""
    must_resume: bool
    """The launcher has promised to continue an earlier job: with no checkpoint to be found, that is an error."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (all flags: python -m trainer --help)", exit_code=2)


def _whole(least: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= MAX_INTEGER:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {MAX_INTEGER}")
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


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # too long a name, or a folder that may not be entered
        return False


_positive = _real("above 0", lambda value: value > 0)
_not_negative = _real("of 0 or more", lambda value: value >= 0)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="trainer", description=__doc__, allow_abbrev=False)
    data = parser.add_argument_group("data and model")
    data.add_argument("--dataset", choices=DATASETS, default="fashion-mnist")
    data.add_argument("--data-dir", type=_path, help="where fetched data is kept (default $DATA_DIR, else ./data)")
    data.add_argument("--data", type=_path, help="your own copy of the data set (default $RINGMASTER_DATA)")
    data.add_argument("--other-data", action="store_true", help="that copy is meant to differ from the published set")
    data.add_argument("--model", choices=MODELS, default="small-cnn")
    steps = parser.add_argument_group("training")
    steps.add_argument("--epochs", type=_whole(1), default=4)
    steps.add_argument("--max-steps", type=_whole(1), help="end after so many optimizer steps")
    steps.add_argument("--batch-size", type=_whole(1), default=256, help="pictures per step, all ranks (default 256)")
    steps.add_argument("--accumulate", type=_whole(1), default=1, help="passes per optimizer step")
    steps.add_argument("--lr", type=_positive, help="peak learning rate (default: the model's, scaled; printed)")
    steps.add_argument("--optimizer", choices=("sgd", "adamw"), default="sgd")
    steps.add_argument("--momentum", type=_real("from 0 to below 1", lambda value: 0 <= value < 1), default=0.9)
    steps.add_argument("--weight-decay", type=_not_negative)
    steps.add_argument("--schedule", choices=("triangular", "cosine", "constant"), default="triangular")
    steps.add_argument("--warmup", type=_real("from 0 to 1", lambda value: 0 <= value <= 1), default=0.2)
    steps.add_argument("--clip-norm", type=_positive)
    steps.add_argument("--seed", type=_whole(0), default=0)
    steps.add_argument("--deterministic", action="store_true", help="bit-wise repeatable on the same devices, slower")
    _add_machine_flags(parser.add_argument_group("ranks and devices"))
    _add_result_flags(parser.add_argument_group("evaluation, checkpoints, files"))
    return parser


def _add_machine_flags(ranks: argparse._ArgumentGroup) -> None:
    ranks.add_argument("--strategy", choices=("none", "ddp"), default="ddp")
    ranks.add_argument(
        "--scaling",
        choices=("strong", "weak"),
        default="strong",
        help="with more ranks: strong = same global batch, weak = --batch-size pictures for each rank",
    )
    ranks.add_argument("--backend", choices=("auto", "nccl", "gloo"), default="auto")
    ranks.add_argument("--precision", choices=("auto", "fp32", "bf16", "fp16"), default="auto")
    ranks.add_argument("--channels-last", action=argparse.BooleanOptionalAction, default=True)
    ranks.add_argument("--compile", action="store_true", help="torch.compile; eager where there is no C++ compiler")
    ranks.add_argument("--timeout", type=_positive, default=300.0, help="seconds a collective may take (default 300)")


def _add_result_flags(results: argparse._ArgumentGroup) -> None:
    results.add_argument("--eval-steps", type=_whole(0), default=0, help="evaluate every N steps too")
    results.add_argument("--max-val-items", type=_whole(1), help="evaluate on the first N test pictures only")
    results.add_argument("--resume", default="auto", metavar="auto|none|PATH", help="checkpoint or folder of them")
    results.add_argument("--checkpoint-seconds", type=_positive, default=30.0)
    results.add_argument("--checkpoint-steps", type=_whole(1), help="a checkpoint every N steps instead")
    results.add_argument("--keep", type=_whole(1), default=3, help="newest checkpoints kept, besides the best")
    results.add_argument("--run-dir", type=_path, help="default $RUN_DIR, else runs/<time>")
    results.add_argument("--debug", action="store_true", help="tracebacks instead of one-line errors")


def _from_env(env: Mapping[str, str], name: str) -> Path | None:
    return Path(env[name]) if env.get(name) else None


def parse(argv: Sequence[str], env: Mapping[str, str]) -> Config:
    """Checks flags and the launcher's variables; raises UserError(2) naming flag, value and what is allowed."""
    flags = vars(_parser().parse_args(list(argv)))
    if flags["resume"] not in ("auto", "none") and not _exists(flags["resume"]):
        raise UserError(f"argument --resume: {flags['resume']!r} is neither auto, none nor a path here", exit_code=2)
    must_resume = env.get("RINGMASTER_RESUME") == "1"
    if must_resume and flags["resume"] == "none":
        raise UserError("argument --resume: none contradicts RESUME; leave one of them away", exit_code=2)
    backend = env.get("RINGMASTER_BACKEND") or "auto"
    if backend not in ("auto", "nccl", "gloo"):
        raise UserError(f"RINGMASTER_BACKEND: {backend!r} is not one of auto, nccl, gloo", exit_code=2)
    gpus = env.get("RINGMASTER_GPUS") or "0"
    if not (gpus.isascii() and gpus.isdigit()):
        raise UserError(f"RINGMASTER_GPUS: {gpus!r} is not a number of GPUs", exit_code=2)
    planned_gpus = 0 if flags["backend"] == "gloo" else int(gpus)
    flags["own_copy"] = flags.pop("data") or _from_env(env, "RINGMASTER_DATA")
    flags["data_dir"] = flags["data_dir"] or _from_env(env, "DATA_DIR") or Path("data")
    flags["run_dir"] = flags["run_dir"] or _from_env(env, "RUN_DIR")
    flags["backend"] = backend if flags["backend"] == "auto" else flags["backend"]
    return Config(
        **flags,
        checkpoint_dir=_from_env(env, "CHECKPOINT_DIR"),
        job=env.get("RINGMASTER_JOB") or None,
        planned_gpus=planned_gpus,
        must_resume=must_resume,
    )


def usage() -> str:
    """The help text of all flags."""
    return _parser().format_help()


def validate_world(config: Config, *, nodes: int, world_size: int) -> None:
    """Raises UserError(2) where the strategy can't use that many ranks."""
    if config.strategy == "none" and world_size > 1:
        raise UserError(
            f"argument --strategy: none trains one rank, not {world_size} on {nodes} node(s); "
            "use --strategy ddp, or one node with one rank",
            exit_code=2,
        )
