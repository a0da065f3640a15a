"""The sections of `run_config.Config`: each module is handed the sections that it needs, not the whole.

A field that a flag fills has the flag's name (`--batch-size`: `batch_size`). `None` means "chosen at run time by the
rule named here".
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Which data set, where it is kept, and how the images of a folder are read."""

    dataset: str
    data_dir: Path
    own_copy: Path | None
    """The user's own copy of the data set (`--data`), file or folder; None = fetch into `data_dir`."""
    other_data: bool
    """The user's copy is meant to be another data set of that format, not a damaged one."""
    image_size: int
    """Height and width that images of a folder are cropped to."""
    crop: str
    """How a folder's training images are cropped: resized, or random (`decode.cut`)."""
    workers: int | None
    """Processes of each rank that read a folder's images; None = found while training (`worker_tuning`)."""
    decode: str
    """Where a folder's JPEG files are decoded: auto, cpu or gpu."""


@dataclass(frozen=True, kw_only=True)
class AugmentationConfig:
    """What is done to training images one by one: `augment.Augmentation`."""

    shift: int
    flip: str
    cutout: int


@dataclass(frozen=True, kw_only=True)
class LossConfig:
    """What is minimized: `loss.Loss`."""

    label_smoothing: float
    mixup: float
    cutmix: float


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """How many images each optimizer step sees, and how they are divided: `scaling.plan_batch`."""

    batch_size: int
    """Images per optimizer step: of all ranks together (strong scaling) or of each rank (weak)."""
    scaling: str
    accumulate: int
    """Forward/backward passes per optimizer step."""


@dataclass(frozen=True, kw_only=True)
class OptimizationConfig:
    """The optimizer and its hyper-parameters: `optimizers.build`."""

    optimizer: str
    lr: float | None
    """Peak learning rate; None = `scaling.learning_rate`."""
    momentum: float
    weight_decay: float | None
    """None = the optimizer's reference, `scaling.WEIGHT_DECAY`."""
    bias_lr_scale: float
    """How many times faster biases learn than weights."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How long training lasts, and how its steps change on the way."""

    epochs: int
    max_steps: int | None
    """Ends training after this many optimizer steps, if the epochs haven't before."""
    schedule: str
    warmup: float
    """Fraction of all steps in which the learning rate rises to its peak, 0..1."""
    clip_norm: float | None
    """Largest global L2 norm of the gradients; None = no clipping."""


@dataclass(frozen=True, kw_only=True)
class ComputeConfig:
    """How a rank computes: number format, memory order, compilation."""

    precision: str
    channels_last: bool
    """Convolutions in (N, H, W, C) memory order: what tensor cores want, and up to twice as fast on CPUs."""
    compile: str
    deterministic: bool


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """When and on what the model is evaluated."""

    eval_steps: int
    """Optimizer steps between evaluations within an epoch; 0 = after each epoch only."""
    max_val_items: int | None
    """How many of the first test images to evaluate on; None = all."""
    tta: str
    """Test-time augmentation: none, or flip (mean of each image's and its mirror image's logits)."""


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When checkpoints are written, how many are kept, and which one the run continues from."""

    resume: str
    must_resume: bool
    """The launcher has promised to continue an earlier job: if there is no checkpoint, that is an error."""
    checkpoint_seconds: float
    checkpoint_steps: int | None
    """Replaces `checkpoint_seconds` if set."""
    keep: int


@dataclass(frozen=True, kw_only=True)
class DistributedConfig:
    """How ranks use the machines and talk to one another."""

    strategy: str
    backend: str
    bind: str
    """`cores.own_cores`: auto, or none."""
    timeout: float
    """Seconds after which a collective that a rank doesn't join fails."""
    planned_gpus: int
    """GPUs of this node that the launcher counts on; 0 where the user's own `--backend gloo` does without."""


@dataclass(frozen=True, kw_only=True)
class OutputConfig:
    """Where a run's files go, and who reports on it."""

    run_dir: Path | None
    """None = runs/<time>, chosen by rank 0."""
    checkpoint_dir: Path | None
    """None = <run_dir>/checkpoints."""
    job: str | None
    """The launcher's job, whose launcher writes the summary and the report; None = the trainer writes them."""
