"""What a run consists of."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from trainer.checkpoint import CheckpointFolder
from trainer.config import Config
from trainer.distributed import World
from trainer.metrics import MetricsWriter
from trainer.objective import Objective
from trainer.pictures import EvaluationPictures, TrainingPictures
from trainer.precision import Precision
from trainer.scaling import BatchPlan
from trainer.state import Parts
from trainer.stopping import StopSignal


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
