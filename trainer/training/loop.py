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
from trainer.training.context import RunContext
from trainer.training.evaluate import Broken, Score, evaluate
from trainer.training.saver import Saver

RECORD_SECONDS = 1.0
PRINT_SECONDS = 10.0
STARVED = 0.1
"""Share of an epoch spent waiting for images above which the epoch's line says so."""


class Meter:
    """Loss and time of some consecutive steps; the loss stays on the device until it is read."""

    def __init__(self, device: torch.device) -> None:
        self._loss = torch.zeros((), device=device)
        self.steps = 0
        self._since = time.monotonic()
        self._paused = 0.0
        self.waited = 0.0
        """Seconds spent waiting for images, or making their batches."""

    def wait(self, seconds: float) -> None:
        """Count a wait for images."""
        self.waited += seconds

    def add(self, loss: Tensor) -> None:
        """Count one step with this mean loss."""
        self._loss += loss
        self.steps += 1

    def loss(self) -> Tensor:
        """Return the mean over the steps, a scalar on the device."""
        return self._loss / max(self.steps, 1)

    def pause(self, seconds: float) -> None:
        """Leave out time that was not spent on training steps."""
        self._paused += seconds

    @property
    def seconds(self) -> float:
        """Seconds since the start, without the pauses."""
        return time.monotonic() - self._since - self._paused


class Loop:
    """Runs from `progress` to the last step, or to a signal."""

    def __init__(self, context: RunContext, progress: Progress) -> None:
        self._context = context
        self._progress = progress
        self._saver = Saver(context, progress)
        self._epoch_meter = Meter(context.world.device)
        self._recent = Meter(context.world.device)
        self._printed = time.monotonic()
        self._recorded = 0
        self._warned = False
        self._stopped_by = 0
        """The signal after which all ranks have left an evaluation."""

    def run(self) -> int:
        """Train, write the last checkpoint, and return the signal that ended training early, or 0."""
        signal = self._catch_up()
        while not signal and self._progress.step < self._context.total_steps:
            signal = self._epoch()
        self._saver.finish()
        return signal

    @property
    def progress(self) -> Progress:
        """Where the run is."""
        return self._progress

    def _catch_up(self) -> int:
        """Evaluate first, if the evaluation of the resumed step was broken off; return what broke this one off."""
        now = self._progress
        if now.step > 0 and now.test_accuracy is None and self._is_evaluated(now.step):
            self._evaluate_step()
            self._saver.evaluated(self._progress, ends=bool(self._stopped_by))
        return self._stopped_by

    def _is_evaluated(self, step: int) -> bool:
        context, every = self._context, self._context.evaluation.eval_steps
        return step == context.total_steps or step % context.steps_per_epoch == 0 or bool(every and step % every == 0)

    def _epoch(self) -> int:
        context, now = self._context, self._progress
        self._epoch_meter = Meter(context.world.device)
        place = Epoch(
            plan=context.plan, rank=context.world.rank, seed=context.seed, number=now.epoch, first_step=now.position
        )
        batches = context.train.epoch(place)
        for _ in range(now.position, context.steps_per_epoch):
            loss = self._step(batches)
            self._epoch_meter.add(loss)
            self._recent.add(loss)
            signal = self._after_step()
            if signal or self._progress.step == context.total_steps:
                return signal
        return 0

    def _step(self, batches: Iterator[Batch]) -> Tensor:
        """Take one optimizer step on this rank's next images; return their mean loss."""
        context = self._context
        parts, passes = context.parts, context.plan.accumulate
        factor = lr_factor(
            self._progress.step + 1,
            total=context.total_steps,
            schedule=context.training.schedule,
            warmup=context.training.warmup,
        )
        for group in parts.optimizer.param_groups:
            group["lr"] = group["peak_lr"] * factor
        parts.optimizer.zero_grad(set_to_none=True)
        losses = []
        for number in range(1, passes + 1):
            images, targets = context.loss.mix(*self._next(batches))
            with self._gradient_exchange(last=number == passes):
                with context.precision.autocast():
                    logits = context.wrapped(images)
                loss = context.loss(logits, targets) / passes
                torch.autograd.backward(parts.scaler.scale(loss))
            losses.append(loss.detach())
        if context.training.clip_norm is not None:
            parts.scaler.unscale_(parts.optimizer)  # the limit applies to the true gradients
            nn.utils.clip_grad_norm_(parts.model.parameters(), context.training.clip_norm)
        parts.scaler.step(parts.optimizer)
        parts.scaler.update()
        return losses[0] if passes == 1 else torch.stack(losses).sum()

    def _next(self, batches: Iterator[Batch]) -> Batch:
        """Return the next batch, and count the wait for it: that is what input costs."""
        since = time.monotonic()
        batch = next(batches)
        self._epoch_meter.wait(time.monotonic() - since)
        return batch

    def _gradient_exchange(self, *, last: bool) -> AbstractContextManager[None]:
        """Return the context of a pass: gradients are exchanged in the last pass of a step only."""
        wrapped = self._context.wrapped
        if last or not isinstance(wrapped, nn.parallel.DistributedDataParallel):
            return nullcontext()
        return wrapped.no_sync()

    def _after_step(self) -> int:
        context, now = self._context, self._progress
        step = now.step + 1
        ends_epoch = step % context.steps_per_epoch == 0
        self._progress = replace(
            now,
            step=step,
            epoch=step // context.steps_per_epoch,
            position=step % context.steps_per_epoch,
            test_accuracy=None,
        )
        self._record()
        if ends_epoch:
            self._finish_epoch()
        elif self._is_evaluated(step):
            self._evaluate_step()
        signal, seconds = self._saver.after_step(self._progress, stopped_by=self._stopped_by)
        self._pause(seconds)
        return signal

    def _evaluate_step(self) -> None:
        context, step = self._context, self._progress.step
        score = self._evaluate()
        if score is None:
            return
        context.metrics.write("step", step=step, epoch=self._number, test_loss=score.loss, test_accuracy=score.accuracy)
        context.say(f"step {step}/{context.total_steps}  test loss {score.loss:.4f}  accuracy {score.accuracy:.4f}")

    @property
    def _number(self) -> int:
        """The epoch of the step just done, from 1."""
        return (self._progress.step - 1) // self._context.steps_per_epoch + 1

    def _rate(self, meter: Meter) -> float:
        return meter.steps * self._context.plan.global_batch / max(meter.seconds, 1e-9)

    def _record(self) -> None:
        """Write a step record if one is due: at the first step of this process, at the last one, and once a second."""
        context, step = self._context, self._progress.step
        due = self._recorded == 0 or step == context.total_steps or self._recent.seconds >= RECORD_SECONDS
        if not (context.world.is_main and due):
            return
        self._recorded = step
        loss, rate = self._recent.loss().item(), self._rate(self._recent)
        lr = context.parts.optimizer.param_groups[0]["lr"]
        context.metrics.write(
            "step",
            step=step,
            epoch=self._number,
            loss=loss,
            lr=lr,
            images_per_s=round(rate, 1),
            total_steps=context.total_steps,
        )
        if not (self._warned or abs(loss) < float("inf")):
            self._warned = True
            context.warn(f"the loss is not finite at step {step}; try a smaller --lr, or --clip-norm 1")
        if time.monotonic() - self._printed >= PRINT_SECONDS:
            self._printed = time.monotonic()
            context.say(f"step {step}/{context.total_steps}  loss {loss:.4f}  lr {lr:.4g}  {rate:,.0f} images/s")
        self._recent = Meter(context.world.device)

    def _evaluate(self) -> Score | None:
        """Return the score; None if all ranks are told to stop meanwhile: a resumed run evaluates instead."""
        context = self._context
        started = time.monotonic()
        score = evaluate(
            context.parts.model,
            context.test,
            context.world,
            context.precision,
            limit=context.evaluation.max_val_items,
            augmentation=context.evaluation.tta,
            stop=lambda: context.stop.number,
        )
        self._pause(time.monotonic() - started)
        if isinstance(score, Broken):
            self._stopped_by = score.signal
            context.say(f"evaluation of step {self._progress.step} broken off by signal {score.signal}")
            return None
        self._progress = replace(self._progress, test_accuracy=score.accuracy)
        return score

    def _pause(self, seconds: float) -> None:
        self._recent.pause(seconds)
        self._epoch_meter.pause(seconds)

    def _finish_epoch(self) -> None:
        context, meter = self._context, self._epoch_meter
        loss = (context.world.sum(meter.loss()) / context.world.world_size).item()
        seconds, rate = meter.seconds, self._rate(meter)  # after the loss: reading it waits for the device
        waiting = meter.waited / max(seconds, 1e-9)
        starved = f", {waiting:.0%} of it waiting for images" if waiting >= STARVED else ""
        score = self._evaluate()
        tested = {"test_loss": score.loss, "test_accuracy": score.accuracy} if score else {}
        context.metrics.write(
            "epoch",
            epoch=self._number,
            step=self._progress.step,
            epochs=context.training.epochs,
            loss=loss,
            **tested,
            images_per_s=round(rate, 1),
            seconds=round(seconds, 3),
            data_wait=round(waiting, 4),
        )
        quality = f"test loss {score.loss:.4f}  accuracy {score.accuracy:.4f}" if score else "not evaluated"
        context.say(
            f"epoch {self._number}/{context.training.epochs}  loss {loss:.4f}  {quality}  "
            f"{rate:,.0f} images/s  {seconds:.1f} s{starved}"
        )
