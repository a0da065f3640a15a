"""What a run consists of."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from trainer.checkpoint.files import CheckpointFolder
from trainer.checkpoint.state import Parts
from trainer.config.scaling import BatchPlan
from trainer.config.sections import CheckpointConfig, EvaluationConfig, TrainingConfig
from trainer.data.batches.protocols import EvaluationImages, TrainingImages
from trainer.distributed.signals import StopSignal
from trainer.distributed.world import World
from trainer.model.loss import Loss
from trainer.model.precision import Precision
from trainer.reporting.metrics import MetricsWriter


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Everything that the training loop works with, made once."""

    training: TrainingConfig
    evaluation: EvaluationConfig
    checkpointing: CheckpointConfig
    seed: int
    timeout: float
    """Seconds that a collective may take."""
    world: World
    parts: Parts
    wrapped: nn.Module
    """The model as training calls it: DDP's wrapper, or the model itself."""
    precision: Precision
    plan: BatchPlan
    loss: Loss
    dataset: str
    """How a checkpoint identifies the data set: `open_data.OpenedData.identity`."""
    train: TrainingImages
    test: EvaluationImages
    steps_per_epoch: int
    total_steps: int
    peak_lr: float
    checkpoints: CheckpointFolder
    metrics: MetricsWriter
    stop: StopSignal
    say: Callable[[str], None]

    def warn(self, message: str) -> None:
        """Print and record a warning, on rank 0."""
        self.metrics.event("warning", message=message)
        self.say(f"warning: {message}")
