"""When checkpoints are taken, and what happens if they can't be. Stopping is taking one and ending."""

import time
from pathlib import Path

from trainer.checkpoint.files import Progress
from trainer.checkpoint.state import capture
from trainer.distributed.agreement import Agreement
from trainer.errors import UserError
from trainer.training.context import RunContext

MOST_MISSES = 3
"""How many checkpoints in a row may fail to be written before the run gives up."""


class Saver:
    """Decides after each step, on all ranks alike, whether to take a checkpoint and whether to stop."""

    def __init__(self, context: RunContext, *, best: float) -> None:
        """`best`: test accuracy, 0..1, that a checkpoint already has."""
        self._context = context
        self._agreement = Agreement(context.world, context.timeout)
        self._best = best
        self._misses = 0
        self._last = time.monotonic()
        self._requested = False

    def after_step(self, progress: Progress) -> tuple[int, float]:
        """Take a checkpoint if one is due: at the last step, a stop, a new best test accuracy, and by the flags.

        Return the signal that told some rank to stop, else 0, and the seconds that the checkpoint took. A collective.

        Raises:
            UserError: exit code 4, on rank 0, after `MOST_MISSES` failures in a row.
            SystemExit: on the other ranks, with the same code.
        """
        context, step = self._context, progress.step
        every = context.checkpointing.checkpoint_steps
        last = step == context.total_steps
        overdue = every is None and time.monotonic() - self._last >= context.checkpointing.checkpoint_seconds
        requests = context.world.is_main and overdue and not self._requested
        self._requested |= requests  # the answer comes a step later; until then one request is enough
        signal, due = self._agreement.exchange([context.stop.number, int(requests)])
        better = (progress.test_accuracy or 0.0) > self._best
        self._best = max(self._best, progress.test_accuracy or 0.0)
        wanted = last or signal or better or due or (every and step % every == 0)
        seconds = self._checkpoint(progress) if wanted else 0.0
        return 0 if last else signal, seconds

    def finish(self) -> None:
        """Wait for the exchange between the ranks that is still under way."""
        self._agreement.finish()

    def _checkpoint(self, progress: Progress) -> float:
        context, started = self._context, time.monotonic()
        content = capture(context.parts, progress, context.world)
        path, problem = context.world.from_main(lambda: self._write(content or b"", progress))
        self._last, self._requested = time.monotonic(), False
        seconds = self._last - started
        if problem is None:
            self._misses = 0
            context.metrics.event("checkpoint", step=progress.step, path=str(path), seconds=round(seconds, 3))
            return seconds
        self._misses += 1
        context.warn(f"checkpoint of step {progress.step} not written: {problem}; the previous one is intact")
        if self._misses == MOST_MISSES:
            with context.world.alike():
                raise UserError(
                    f"{MOST_MISSES} checkpoints in a row could not be written to {context.checkpoints.path}: "
                    f"{problem}; make room there, then resume",
                    exit_code=4,
                )
        return seconds

    def _write(self, content: bytes, progress: Progress) -> tuple[Path | None, str | None]:
        context = self._context
        try:
            return context.checkpoints.write(content, vars(progress), keep=context.checkpointing.keep), None
        except OSError as error:
            return None, error.strerror or str(error)
