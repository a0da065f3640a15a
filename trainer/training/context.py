"""What a run consists of."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from trainer.checkpoint.files import CheckpointFolder
from trainer.checkpoint.state import Parts
from trainer.config.run_config import Config
from trainer.config.scaling import BatchPlan
from trainer.data.batches.protocols import EvaluationPictures, TrainingPictures
from trainer.distributed.signals import StopSignal
from trainer.distributed.world import World
from trainer.model.objective import Objective
from trainer.model.precision import Precision
from trainer.reporting.metrics import MetricsWriter


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that the training loop works with, made once."""

    config: Config
    world: World
    parts: Parts
    wrapped: nn.Module
    """The model as training calls it: DDP's wrapper, or the model itself."""
    precision: Precision
    plan: BatchPlan
    objective: Objective
    dataset: str
    """What a checkpoint remembers the data set by: `open_data.Opened.identity`."""
    train: TrainingPictures
    test: EvaluationPictures
    steps_per_epoch: int
    total_steps: int
    peak_lr: float
    checkpoints: CheckpointFolder
    metrics: MetricsWriter
    stop: StopSignal
    say: Callable[[str], None]

    def warn(self, message: str) -> None:
        """Prints and records a warning, on rank 0."""
        self.metrics.event("warning", message=message)
        self.say(f"warning: {message}")
