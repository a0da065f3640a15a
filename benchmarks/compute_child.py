"""The process behind `benchmarks.compute`: computes the steps that standard input asks for."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.compute import PARTS, Setting
from benchmarks.served import serve
from launcher.base.paths import ROOT
from trainer.checkpoint import state
from trainer.config import run_config, scaling
from trainer.data import open_data
from trainer.data.batches.protocols import Batch
from trainer.data.batches.sampling import Epoch
from trainer.distributed import malloc
from trainer.distributed import world as distributed
from trainer.model import models, optimizers, precision
from trainer.model.loss import Loss

MOST_OPERATORS = 8
_WARM_STEPS = 12


class Child:
    """The trainer's parts in a bare loop; the methods are those of `benchmarks.compute.Steps`."""

    def __init__(self, setting: Setting) -> None:
        if setting.kept_memory:
            malloc.keep_freed_memory()
        if setting.threads is not None:
            torch.set_num_threads(setting.threads)
        chosen = run_config.parse(setting.flags, {"DATA_DIR": str(ROOT / "data")})
        world = distributed.join(chosen.distributed, {})
        layout = torch.channels_last if chosen.compute.channels_last else torch.contiguous_format
        data = open_data.open_data(chosen.data, chosen.augmentation, world, layout, seed=chosen.seed)
        self._device, self._train = world.device, data.train
        self._plan = scaling.plan_batch(chosen.batch, world_size=1)
        self._precision = precision.choose(chosen.compute.precision, world.device, chosen.model)
        self._loss_of = Loss(label_smoothing=chosen.loss.label_smoothing)
        state.seed_everything(chosen.seed)
        model = models.build(chosen.model, channels=data.channels, size=data.size, classes=data.classes)
        self._model = model.to(world.device, memory_format=layout)  # type: ignore[call-overload]  # as in trainer.run
        models.fit_to_data(self._model, data.train, size=data.size)
        if setting.compiled:
            self._model.compile()
        lr, _ = scaling.learning_rate(chosen.optimization, chosen.model, self._plan.global_batch)
        self._optimizer = optimizers.build(chosen.optimization, self._model, lr)
        for group in self._optimizer.param_groups:
            group["fused"] = setting.fused
        self._epochs = 0
        self._ready: list[Batch] = []

    def count(self, _: int) -> int:
        """As `Steps.batches`."""
        return len(self._train) // self._plan.global_batch

    def precision(self, _: int) -> str:
        """As `Steps.precision`."""
        return self._precision.name

    def seconds(self, steps: int) -> float:
        """As `Steps.seconds`."""
        if not self._ready:
            self._ready = [(images.clone(), labels.clone()) for images, labels in self._epoch()]
            self._run(_WARM_STEPS)
        begun = time.perf_counter()
        self._run(steps)
        return time.perf_counter() - begun

    def parts(self, steps: int) -> dict[str, float]:
        """As `Steps.parts`; on a GPU each part is waited for."""
        spent = dict.fromkeys(PARTS, 0.0)
        source = self._batches()
        for _ in range(_WARM_STEPS):
            self._step(*next(source))

        def timed(part: str, work: Callable[[], Any]) -> Any:
            begun = time.perf_counter()
            result = work()
            self._wait()
            spent[part] += time.perf_counter() - begun
            return result

        for _ in range(steps):
            images, labels = timed("input", partial(next, source))
            loss = timed("forward", partial(self._loss, images, labels))
            timed("backward", loss.backward)
            timed("optimizer", self._update)
        return {part: seconds / steps for part, seconds in spent.items()}

    def operators(self, steps: int) -> list[tuple[str, float, float]]:
        """As `Steps.operators`."""
        on_gpu = self._device.type == "cuda"
        source = self._batches()
        for _ in range(_WARM_STEPS):
            self._step(*next(source))
        with profile(activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_gpu) as seen:
            for _ in range(steps):
                self._step(*next(source))
            self._wait()
        own = "self_device_time_total" if on_gpu else "self_cpu_time_total"
        spent = [(str(event.key), float(getattr(event, own)), event.count / steps) for event in seen.key_averages()]
        whole = sum(time for _, time, _ in spent)
        spent.sort(key=lambda operator: -operator[1])
        return [(name, time / whole, calls) for name, time, calls in spent[:MOST_OPERATORS]]

    @torch.no_grad()
    def loss(self) -> float:
        """Return the loss on the first images of the training order: the steps bring it down."""
        return self._loss(*self._train.example(self._plan.global_batch)).item()

    def _run(self, steps: int) -> None:
        for number in range(steps):
            self._step(*self._ready[number % len(self._ready)])
        self._wait()

    def _step(self, images: Tensor, labels: Tensor) -> None:
        torch.autograd.backward(self._loss(images, labels))
        self._update()

    def _loss(self, images: Tensor, labels: Tensor) -> Tensor:
        with self._precision.autocast():
            logits = self._model(images)
        return self._loss_of(logits, labels)

    def _update(self) -> None:
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def _batches(self) -> Iterator[Batch]:
        while True:
            yield from self._epoch()

    def _epoch(self) -> Iterator[Batch]:
        place = Epoch(plan=self._plan, rank=0, seed=0, number=self._epochs)
        self._epochs += 1
        return self._train.epoch(place)

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()


def prepare() -> Mapping[str, Callable[[Any], Any]]:
    """Return the questions that can be asked of the setting on the command line."""
    child = Child(Setting(**json.loads(sys.argv[1])))
    return {
        "count": child.count,
        "precision": child.precision,
        "seconds": child.seconds,
        "parts": child.parts,
        "operators": child.operators,
    }


if __name__ == "__main__":
    serve(prepare)
