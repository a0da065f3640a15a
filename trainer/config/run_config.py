"""What a run is asked to do. Free of torch, so that the launcher can check it before anything starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.config import flags as flag_values
from trainer.errors import UserError


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
    image_size: int
    """Height and width that pictures of a folder are cropped to."""
    crop: str
    """Of a folder's pictures for training: resized, or random (`decode.cut`)."""
    workers: int | None
    """Processes of each rank that read a folder's pictures; None = found while training (`worker_tuning`)."""
    decode: str
    """Where a folder's JPEG files are decoded: auto, cpu or gpu."""
    recipe: str | None
    """The tuned set that flags not given were taken from; None = the parser's own defaults."""
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
    bias_lr_scale: float
    """Biases learn so many times faster than weights."""
    label_smoothing: float
    mixup: float
    cutmix: float
    """These three: `objective.Objective`."""
    shift: int
    flip: str
    cutout: int
    """These three: `augment.Augmentation`."""
    tta: str
    """Test-time augmentation: none, or flip (mean of each picture's and its mirror image's logits)."""
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
    bind: str
    """`cores.own_cores`: auto, or none."""
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
    compile: str
    timeout: float
    """Seconds after which a collective that a rank doesn't join fails."""
    debug: bool
    job: str | None
    """Name given by a launcher, which then writes the summary and the report; None = the trainer writes them."""
    planned_gpus: int
    """GPUs of this node that the launcher counts on; 0 where the user's own `--backend gloo` does without."""
    must_resume: bool
    """The launcher has promised to continue an earlier job: with no checkpoint to be found, that is an error."""


def _from_env(env: Mapping[str, str], name: str) -> Path | None:
    return Path(env[name]) if env.get(name) else None


def _check_folder(flags: Mapping[str, Any]) -> None:
    if flags["dataset"] != "folder":
        return
    if flags["own_copy"] is None:
        raise UserError(
            "argument --dataset: folder needs your pictures: --data PATH (with make: DATA=PATH), with "
            "train/<class>/*.jpg and val/<class>/*.jpg in it",
            exit_code=2,
        )
    if flags["shift"]:
        source = f", which recipe {flags['recipe']} asks for" if flags["recipe"] else ""
        raise UserError(
            f"argument --shift{source}: a folder's pictures are cropped at random already (--crop); use --shift 0",
            exit_code=2,
        )


def parse(argv: Sequence[str], env: Mapping[str, str]) -> Config:
    """Checks flags and the launcher's variables; raises UserError(2) naming flag, value and what is allowed."""
    flags = flag_values.values(argv)
    if flags["resume"] not in ("auto", "none") and not flag_values.exists(flags["resume"]):
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
    if flags["strategy"] == "dp" and flags["compile"] in ("on", "graphs"):
        raise UserError("argument --compile: --strategy dp can't be compiled; use --strategy ddp", exit_code=2)
    flags["own_copy"] = flags.pop("data") or _from_env(env, "RINGMASTER_DATA")
    _check_folder(flags)
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


def strategy(argv: Sequence[str]) -> str:
    """The strategy that these arguments choose; empty where they are no good, or only ask for help."""
    if {"-h", "--help"} & set(argv):
        return ""
    try:
        return str(flag_values.values(argv)["strategy"])
    except UserError:
        return ""


def usage() -> str:
    """The help text of all flags."""
    return flag_values.parser().format_help()


def validate_world(config: Config, *, nodes: int, world_size: int) -> None:
    """Raises UserError(2) where the strategy can't use that many ranks."""
    if config.strategy == "ddp" or (nodes == 1 and world_size == 1):
        return
    how = "in one process, on all GPUs of one node" if config.strategy == "dp" else "in one process"
    raise UserError(
        f"argument --strategy: {config.strategy} trains {how}, not in {world_size} on {nodes} node(s); "
        "use --strategy ddp, or NODES=1 (without make: --nnodes=1 --nproc-per-node=1)",
        exit_code=2,
    )
