"""The training loop: steps, epochs, evaluation and their records."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch
from torch import Tensor, nn

from trainer.checkpoint.files import Progress
from trainer.config.scaling import lr_factor
from trainer.data.batches.protocols import Batch
from trainer.data.batches.sampling import Epoch
from trainer.training.context import Job
from trainer.training.evaluate import Score, evaluate
from trainer.training.saver import Saver

RECORD_SECONDS = 1.0
PRINT_SECONDS = 10.0
STARVED = 0.1
"""Share of an epoch spent waiting for pictures from which on it is said."""


class Meter:
    """Loss and time of some consecutive steps; the loss stays on the device until it is read."""

    def __init__(self, device: torch.device) -> None:
        self._loss = torch.zeros((), device=device)
        self.steps = 0
        self._since = time.monotonic()
        self._paused = 0.0
        self.waited = 0.0
        """Seconds spent waiting for pictures, or making their batches."""

    def wait(self, seconds: float) -> None:
        """Counts a wait for pictures."""
        self.waited += seconds

    def add(self, loss: Tensor) -> None:
        """Counts one step with this mean loss."""
        self._loss += loss
        self.steps += 1

    def loss(self) -> Tensor:
        """Mean over the steps, a scalar on the device."""
        return self._loss / max(self.steps, 1)

    def pause(self, seconds: float) -> None:
        """Leaves time out that was not spent on training steps."""
        self._paused += seconds

    @property
    def seconds(self) -> float:
        """Seconds since the start, pauses left out."""
        return time.monotonic() - self._since - self._paused


class Loop:
    """Runs from `progress` to the last step, or to a signal."""

    def __init__(self, job: Job, progress: Progress) -> None:
        self._job = job
        self._progress = progress
        self._saver = Saver(job, best=progress.test_accuracy or 0.0)
        self._epoch_meter = Meter(job.world.device)
        self._recent = Meter(job.world.device)
        self._printed = time.monotonic()
        self._recorded = 0
        self._warned = False

    def run(self) -> int:
        """Returns the signal that ended training early, 0 if none did; the last checkpoint is then written."""
        signal = 0
        while not signal and self._progress.step < self._job.total_steps:
            signal = self._epoch()
        self._saver.finish()
        return signal

    @property
    def progress(self) -> Progress:
        """Where the run is."""
        return self._progress

    def _epoch(self) -> int:
        job, now = self._job, self._progress
        self._epoch_meter = Meter(job.world.device)
        place = Epoch(
            plan=job.plan, rank=job.world.rank, seed=job.config.seed, number=now.epoch, first_step=now.position
        )
        batches = job.train.epoch(place)
        for _ in range(now.position, job.steps_per_epoch):
            loss = self._step(batches)
            self._epoch_meter.add(loss)
            self._recent.add(loss)
            signal = self._after_step()
            if signal or self._progress.step == job.total_steps:
                return signal
        return 0

    def _step(self, batches: Iterator[Batch]) -> Tensor:
        """One optimizer step on this rank's next pictures; returns their mean loss."""
        job = self._job
        parts, passes = job.parts, job.plan.accumulate
        factor = lr_factor(
            self._progress.step + 1,
            total=job.total_steps,
            schedule=job.config.schedule,
            warmup=job.config.warmup,
        )
        for group in parts.optimizer.param_groups:
            group["lr"] = group["peak_lr"] * factor
        parts.optimizer.zero_grad(set_to_none=True)
        losses = []
        for number in range(1, passes + 1):
            images, targets = job.objective.mix(*self._next(batches))
            with self._gradients_kept(last=number == passes):
                with job.precision.autocast():
                    logits = job.wrapped(images)
                loss = job.objective.loss(logits, targets) / passes
                torch.autograd.backward(parts.scaler.scale(loss))
            losses.append(loss.detach())
        if job.config.clip_norm is not None:
            parts.scaler.unscale_(parts.optimizer)  # the limit is meant for the true gradients
            nn.utils.clip_grad_norm_(parts.model.parameters(), job.config.clip_norm)
        parts.scaler.step(parts.optimizer)
        parts.scaler.update()
        return losses[0] if passes == 1 else torch.stack(losses).sum()

    def _next(self, batches: Iterator[Batch]) -> Batch:
        """The next batch; the time it takes to come is what input costs."""
        asked = time.monotonic()
        batch = next(batches)
        waited = time.monotonic() - asked
        self._epoch_meter.wait(waited)
        return batch

    def _gradients_kept(self, *, last: bool) -> AbstractContextManager[None]:
        """Gradients are exchanged in the last pass of a step only."""
        wrapped = self._job.wrapped
        if last or not isinstance(wrapped, nn.parallel.DistributedDataParallel):
            return nullcontext()
        return wrapped.no_sync()

    def _after_step(self) -> int:
        job, now = self._job, self._progress
        step = now.step + 1
        ends_epoch = step % job.steps_per_epoch == 0
        self._progress = replace(
            now, step=step, epoch=step // job.steps_per_epoch, position=step % job.steps_per_epoch, test_accuracy=None
        )
        self._record()
        every = job.config.eval_steps
        if ends_epoch:
            self._finish_epoch()
        elif step == job.total_steps or (every and step % every == 0):
            score = self._evaluate()
            job.metrics.write("step", step=step, epoch=self._number, test_loss=score.loss, test_accuracy=score.accuracy)
            job.say(f"step {step}/{job.total_steps}  test loss {score.loss:.4f}  accuracy {score.accuracy:.4f}")
        signal, seconds = self._saver.after_step(self._progress)
        self._pause(seconds)
        return signal

    @property
    def _number(self) -> int:
        """The epoch of the step just done, from 1."""
        return (self._progress.step - 1) // self._job.steps_per_epoch + 1

    def _rate(self, meter: Meter) -> float:
        return meter.steps * self._job.plan.global_batch / max(meter.seconds, 1e-9)

    def _record(self) -> None:
        """Writes a step record where one is due: the first step of this process, the last one, once a second."""
        job, step = self._job, self._progress.step
        due = self._recorded == 0 or step == job.total_steps or self._recent.seconds >= RECORD_SECONDS
        if not (job.world.is_main and due):
            return
        self._recorded = step
        loss, rate = self._recent.loss().item(), self._rate(self._recent)
        lr = job.parts.optimizer.param_groups[0]["lr"]
        job.metrics.write(
            "step",
            step=step,
            epoch=self._number,
            loss=loss,
            lr=lr,
            images_per_s=round(rate, 1),
            total_steps=job.total_steps,
        )
        if not (self._warned or abs(loss) < float("inf")):
            self._warned = True
            job.warn(f"the loss is not finite at step {step}; try a smaller --lr, or --clip-norm 1")
        if time.monotonic() - self._printed >= PRINT_SECONDS:
            self._printed = time.monotonic()
            job.say(f"step {step}/{job.total_steps}  loss {loss:.4f}  lr {lr:.4g}  {rate:,.0f} images/s")
        self._recent = Meter(job.world.device)

    def _evaluate(self) -> Score:
        job = self._job
        started = time.monotonic()
        score = evaluate(
            job.parts.model,
            job.test,
            job.world,
            job.precision,
            limit=job.config.max_val_items,
            sides=job.config.tta,
        )
        self._pause(time.monotonic() - started)
        self._progress = replace(self._progress, test_accuracy=score.accuracy)
        return score

    def _pause(self, seconds: float) -> None:
        self._recent.pause(seconds)
        self._epoch_meter.pause(seconds)

    def _finish_epoch(self) -> None:
        job, meter = self._job, self._epoch_meter
        loss = (job.world.sum(meter.loss()) / job.world.world_size).item()
        seconds, rate = meter.seconds, self._rate(meter)  # after the loss: reading it waits for the device
        waiting = meter.waited / max(seconds, 1e-9)
        starved = f", {waiting:.0%} of it waiting for pictures" if waiting >= STARVED else ""
        score = self._evaluate()
        job.metrics.write(
            "epoch",
            epoch=self._number,
            step=self._progress.step,
            epochs=job.config.epochs,
            loss=loss,
            test_loss=score.loss,
            test_accuracy=score.accuracy,
            images_per_s=round(rate, 1),
            seconds=round(seconds, 3),
            data_wait=round(waiting, 4),
        )
        job.say(
            f"epoch {self._number}/{job.config.epochs}  loss {loss:.4f}  test loss {score.loss:.4f}  "
            f"accuracy {score.accuracy:.4f}  {rate:,.0f} images/s  {seconds:.1f} s{starved}"
        )
