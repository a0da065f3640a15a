"""How batch, learning rate and number of ranks depend on each other. Pure arithmetic, free of torch."""

import math
from dataclasses import dataclass

from trainer.config.sections import BatchConfig, OptimizationConfig, TrainingConfig
from trainer.errors import UserError

REFERENCE_BATCH = 256
"""Global batch at which the learning rates below were tuned."""
REFERENCE_LR = {
    ("small-cnn", "sgd"): 0.2,
    ("fast-cnn", "sgd"): 0.2,
    ("fast-cnn-wide", "sgd"): 0.2,
    ("airbench-cnn", "sgd"): 0.375,  # 1.5 at batch 1,024, see trainer/config/recipes.py
    ("tutorial-cnn", "sgd"): 0.1,
    ("resnet18", "sgd"): 0.1,  # Goyal et al. 2017, section 5.1
    ("small-cnn", "adamw"): 4e-3,
    ("fast-cnn", "adamw"): 4e-3,
    ("fast-cnn-wide", "adamw"): 4e-3,
    ("airbench-cnn", "adamw"): 4e-3,
    ("tutorial-cnn", "adamw"): 4e-3,
    ("resnet18", "adamw"): 1e-3,
}
OTHER_LR = {"sgd": 0.1, "adamw": 1e-3}
"""For models that are not ours: ResNet-50's (Goyal et al. 2017, section 5.1) and AdamW's default, as a start."""
WEIGHT_DECAY = {"sgd": 5e-4, "adamw": 1e-2}


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """How one optimizer step's images are divided; every part has the same size, so means of means are exact."""

    world_size: int
    accumulate: int
    micro_batch: int
    """Images in one forward/backward pass of one rank."""

    @property
    def per_rank(self) -> int:
        """Images of one rank in one optimizer step."""
        return self.micro_batch * self.accumulate

    @property
    def global_batch(self) -> int:
        """Images of all ranks in one optimizer step."""
        return self.per_rank * self.world_size


def plan_batch(config: BatchConfig, *, world_size: int) -> BatchPlan:
    """Divide the batch over ranks and passes, rounded to the nearest whole number of images for each, at least 1."""
    parts = config.accumulate * (world_size if config.scaling == "strong" else 1)
    micro_batch = max(1, math.floor(config.batch_size / parts + 0.5))
    return BatchPlan(world_size=world_size, accumulate=config.accumulate, micro_batch=micro_batch)


def batch_rule(config: BatchConfig, plan: BatchPlan) -> str:
    """Return a line for the user: what became of --batch-size."""
    passes = f" in {plan.accumulate} passes" if plan.accumulate > 1 else ""
    text = f"global batch {plan.global_batch} = {plan.world_size} rank(s) x {plan.per_rank}{passes}"
    requested = config.batch_size * (plan.world_size if config.scaling == "weak" else 1)
    rounded = (
        f", rounded from {requested} so that all ranks and passes get the same"
        if requested != plan.global_batch
        else ""
    )
    kept = "the same for any number of ranks" if config.scaling == "strong" else "grows with the ranks"
    return f"{text} ({config.scaling} scaling: {kept}{rounded})"


def learning_rate(config: OptimizationConfig, model: str, global_batch: int) -> tuple[float, str]:
    """Return the peak learning rate, and a line that names its rule.

    SGD: linear in the global batch (Goyal et al. 2017, arXiv:1706.02677); AdamW: with its square root
    (Malladi et al. 2022, arXiv:2205.10287).
    """
    if config.lr is not None:
        return config.lr, f"lr {config.lr:g} as given"
    reference = REFERENCE_LR.get((model, config.optimizer), OTHER_LR[config.optimizer])
    ratio = global_batch / REFERENCE_BATCH
    lr = reference * (ratio if config.optimizer == "sgd" else math.sqrt(ratio))
    rule = "linear" if config.optimizer == "sgd" else "square-root"
    untuned = "" if (model, config.optimizer) in REFERENCE_LR else f", the usual one, not tuned for {model}"
    return lr, f"lr {lr:g} = {rule} rule from {reference:g} at batch {REFERENCE_BATCH}{untuned}"


def steps_per_epoch(images: int, global_batch: int) -> int:
    """Return the full global batches in the training set; the rest of each epoch's permutation is left out.

    Raises:
        UserError: exit code 2, if there isn't one.
    """
    if images < global_batch:
        raise UserError(
            f"argument --batch-size: a global batch of {global_batch} is more than the {images} training images; "
            f"choose at most {images}",
            exit_code=2,
        )
    return images // global_batch


def total_steps(config: TrainingConfig, per_epoch: int) -> int:
    """Return the optimizer steps of the whole run."""
    steps = config.epochs * per_epoch
    return steps if config.max_steps is None else min(steps, config.max_steps)


def lr_factor(step: int, *, total: int, schedule: str, warmup: float) -> float:
    """Return the fraction (0, 1] of the peak learning rate for the optimizer step `step` (from 1 to `total`).

    Linear warm-up over the first `warmup * total` steps, then constant, or falling to 0 just after the last step: in a
    line (triangular; Smith 2017, arXiv:1506.01186) or half a cosine (Loshchilov & Hutter 2017, arXiv:1608.03983).
    """
    rising = round(warmup * total)
    if step <= rising:
        return step / (rising + 1)
    if schedule == "constant":
        return 1.0
    left = (total + 1 - step) / (total - rising)
    return left if schedule == "triangular" else (1 - math.cos(math.pi * left)) / 2
