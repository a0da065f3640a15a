"""Optimizer steps on tensors that are already in place, in separate processes that wait for their turn.

What a training step costs without data, records and checkpoints: the trainer's own parts (model, precision, loss,
optimizer) in a bare loop.
"""

from dataclasses import asdict, dataclass

from benchmarks.served import Served

PARTS = ("input", "forward", "backward", "optimizer")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How steps are computed."""

    flags: tuple[str, ...]
    """The trainer's flags, such as --model and --batch-size."""
    fused: bool = True
    """The optimizer as one kernel."""
    kept_memory: bool = True
    """`trainer.distributed.malloc`."""
    threads: int | None = None
    """None = as torch chooses."""
    compiled: bool = False
    """By torch.compile; --compile among the flags has no effect here."""


class Steps(Served):
    """Compute steps as a setting says.

    All methods raise RingmasterError where the process has failed; what it said is on the screen.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__("benchmarks.compute_child", asdict(setting))

    def batches(self) -> int:
        """Return how many batches an epoch has."""
        return int(self.ask("count", 0))

    def precision(self) -> str:
        """Return the number format: fp32, bf16 or fp16."""
        return str(self.ask("precision", 0))

    def seconds(self, steps: int) -> float:
        """Return the wall time of this many optimizer steps on batches cut beforehand, warmed up."""
        return float(self.ask("seconds", steps))

    def parts(self, steps: int) -> dict[str, float]:
        """Return the seconds of each of PARTS in one step: the mean over this many, with the trainer's own input."""
        return dict(self.ask("parts", steps))

    def operators(self, steps: int) -> list[tuple[str, float, float]]:
        """Return the heaviest operators: name, share of all operators' own time (0..1), calls in one step."""
        return [(name, share, calls) for name, share, calls in self.ask("operators", steps)]
