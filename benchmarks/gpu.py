"""What training takes on a GPU: the recipe's time, a small network's steps, ResNet-50's, the cost of DDP's wrapper.

Where torch sees no GPU every row says so: nothing is estimated.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.result import Ratio, Result, Row
from benchmarks.trainings import train
from benchmarks.turns import in_turn

if TYPE_CHECKING:
    import torch
    from torch import nn

Step = Callable[["torch.Tensor", "torch.Tensor"], None]
"""One optimizer step on images (B, 3, H, W) and labels (B,)."""
REPETITIONS, QUICK_REPETITIONS = 5, 3
_CIFAR_BATCH = 1024
"""The recipe's."""
TARGET = 0.94
_STEPS, _WARM_UP = 100, 10
"""Steps of one measurement, and those before it that don't count."""
_MISSING = "not measured yet: no GPU here"
_LABELS = {
    "recipe": (f"Fashion-MNIST recipe, training until {TARGET:.0%}", "s"),
    "cifar": ("CIFAR-10 recipe's step (batch 1,024), made-up CIFAR-shaped images", "images/s"),
    "resnet": ("ResNet-50, 224 px, bf16, channels_last, batch 256", "images/s"),
    "compiled": ("the same, compiled", "images/s"),
    "plain": ("ResNet-50's step without DDP's wrapper", "ms"),
    "wrapped": ("ResNet-50's step in DDP's wrapper, one rank", "ms"),
}


def measure(quick: bool) -> Result:
    """Measure everything above on the first GPU; without a GPU the rows have no values."""
    import torch

    values: dict[str, tuple[float, ...]] = {}
    if torch.cuda.is_available():
        repetitions = QUICK_REPETITIONS if quick else REPETITIONS
        values = {**_recipe(repetitions), **_steps(repetitions)}
    medians = {name: statistics.median(found) for name, found in values.items() if found}
    both = "wrapped" in medians and "plain" in medians
    cost = medians["wrapped"] / medians["plain"] - 1 if both else None
    return Result(
        name="gpu",
        title="Training on a GPU",
        command="make bench ONLY=gpu",
        rows=tuple(
            Row(
                label=label,
                unit=unit,
                values=values.get(name, ()),
                note="" if values.get(name) else _note(name, measured=bool(values)),
            )
            for name, (label, unit) in _LABELS.items()
        ),
        ratios=(
            Ratio(label=f"seconds of training until {TARGET:.0%}", value=medians.get("recipe"), most=3),
            Ratio(label="ResNet-50, images/s", value=_best(medians), least=3000),
            Ratio(label="cost of DDP's wrapper, as a part of the step", value=cost, most=0.01),
        ),
        notes=(
            "A step is forward pass, backward pass and optimizer on one batch that stays on the GPU, without "
            "input. The CIFAR-10 recipe's has the trainer's own number format, loss and optimizer; ResNet-50's is in "
            "bf16 with SGD and Nesterov momentum.",
        ),
    )


def _note(name: str, *, measured: bool) -> str:
    if not measured:
        return _MISSING
    return f"not every seed reaches {TARGET:.0%}" if name == "recipe" else "failed: what it said stands in the output"


def _best(medians: dict[str, float]) -> float | None:
    return max((medians[name] for name in ("resnet", "compiled") if name in medians), default=None)


def _recipe(repetitions: int) -> dict[str, tuple[float, ...]]:
    """Return the seconds of training, by seed; if a run never gets there, the row has no values."""
    runs = [train(["--recipe", "fashion-mnist-94", "--seed", str(seed)]) for seed in range(repetitions)]
    seconds = [run.seconds_to(TARGET) for run in runs]
    return {"recipe": tuple(each for each in seconds if each is not None) if all(seconds) else ()}


def _steps(repetitions: int) -> dict[str, tuple[float, ...]]:
    resnet, images = _model("resnet50", 224), 256
    compiled = _model("resnet50", 224)
    compiled.compile()
    with _alone() as wrapped_of:
        ways: dict[str, Callable[[], float]] = {
            "cifar": _rate(recipe_step("cifar10"), 32, _CIFAR_BATCH),
            "resnet": _rate(_plain_step(resnet), 224, images),
            "compiled": _rate(_plain_step(compiled), 224, images),
            "plain": _milliseconds(_plain_step(resnet), 224, images),
            "wrapped": _milliseconds(_plain_step(wrapped_of(_model("resnet50", 224))), 224, images),
        }
        # What has no room on this GPU, or doesn't compile, is no reason to lose the rest.
        return in_turn(ways, repetitions, unit="", optional=tuple(ways))


def _model(name: str, size: int, device: str = "cuda") -> nn.Module:
    import torch

    from trainer.model import models

    model = models.build(name, channels=3, size=size, classes=1000 if size == 224 else 10)
    placed: nn.Module = model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return placed


@contextlib.contextmanager
def _alone() -> Iterator[Callable[[nn.Module], nn.Module]]:
    """Open a world of one rank over NCCL; yield the function that wraps a model in DDP there."""
    import torch
    import torch.distributed as dist

    from trainer.distributed import world as distributed

    device = torch.device("cuda", 0)
    world = distributed.World(
        rank=0, local_rank=0, world_size=1, nodes=1, device=device, backend="nccl", data_group=None
    )
    with tempfile.TemporaryDirectory() as folder:
        place = (Path(folder) / "store").as_uri()
        dist.init_process_group("nccl", init_method=place, rank=0, world_size=1)
        try:
            yield lambda model: distributed.with_gradients_averaged(model, world, accumulate=1)
        finally:
            dist.destroy_process_group()


def recipe_step(name: str, device: str = "cuda") -> Step:
    """Return a step of a recipe as the trainer computes it, without input, schedule and records."""
    import torch

    from trainer.config import run_config, scaling
    from trainer.model import loss, optimizers, precision

    chosen = run_config.parse(("--dataset", name, "--recipe", name), {})
    model = _model(chosen.model, 32, device)
    form = precision.choose(chosen.compute.precision, torch.device(device), chosen.model)
    loss_of = loss.Loss(label_smoothing=chosen.loss.label_smoothing)
    peak_lr, _ = scaling.learning_rate(chosen.optimization, chosen.model, chosen.batch.batch_size)
    optimizer = optimizers.build(chosen.optimization, model, peak_lr)

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        with form.autocast():
            logits = model(images)
        torch.autograd.backward(loss_of(logits, labels))
        optimizer.step()

    return step


def _plain_step(model: nn.Module) -> Step:
    import torch

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=1e-4, momentum=0.9, nesterov=True, fused=True)

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(images)
        torch.autograd.backward(torch.nn.functional.cross_entropy(logits.float(), labels))
        optimizer.step()

    return step


def _rate(step: Step, size: int, batch: int) -> Callable[[], float]:
    return lambda: batch / _seconds(step, size, batch)


def _milliseconds(step: Step, size: int, batch: int) -> Callable[[], float]:
    return lambda: 1000 * _seconds(step, size, batch)


def _seconds(step: Step, size: int, batch: int) -> float:
    """Return the seconds of one training step."""
    import torch

    images = torch.randn(batch, 3, size, size, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(10, (batch,), device="cuda")
    started = 0.0
    for number in range(_WARM_UP + _STEPS):
        if number == _WARM_UP:
            torch.cuda.synchronize()
            started = time.monotonic()
        step(images, labels)
    torch.cuda.synchronize()
    return (time.monotonic() - started) / _STEPS
