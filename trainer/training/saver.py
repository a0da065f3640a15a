"""When checkpoints are taken, and what happens if they can't be. Stopping is taking one and ending."""

import time
from pathlib import Path

from trainer.checkpoint.files import Progress, reason
from trainer.checkpoint.insist import UnsavedError, insist
from trainer.checkpoint.state import capture
from trainer.distributed.agreement import Agreement
from trainer.errors import UserError
from trainer.training.context import RunContext

MOST_MISSES = 3
"""How many checkpoints in a row may fail to be written before the run gives up."""


class Saver:
    """Decides after each step, on all ranks alike, whether to take a checkpoint and whether to stop."""

    def __init__(self, context: RunContext, start: Progress) -> None:
        """`start`: where the run begins; beyond step 0 that is a checkpoint."""
        self._context = context
        self._agreement = Agreement(context.world, context.timeout)
        self._best = start.test_accuracy or 0.0
        self._saved = start.step
        self._misses = 0
        self._last = time.monotonic()
        self._requested = False

    def after_step(self, progress: Progress, *, stopped_by: int = 0) -> tuple[int, float]:
        """Take a checkpoint if one is due: at the last step, a stop, a new best test accuracy, and by the flags.

        Return the signal that told some rank to stop, else 0, and the seconds that the checkpoint took. A collective.

        Args:
            progress: where the run is.
            stopped_by: the signal that all ranks agree to have heard; 0 if they have not.

        Raises:
            UserError: exit code 4, on rank 0, if the last checkpoint can't be written anywhere, or one after
                `MOST_MISSES` failures in a row.
            SystemExit: on the other ranks, with the same code.
        """
        context, step = self._context, progress.step
        every = context.checkpointing.checkpoint_steps
        last = step == context.total_steps
        overdue = every is None and time.monotonic() - self._last >= context.checkpointing.checkpoint_seconds
        requests = context.world.is_main and overdue and not self._requested
        self._requested |= requests  # the answer comes a step later; until then one request is enough
        signal, due = self._agreement.exchange([context.stop.number, int(requests)])
        signal = stopped_by or signal
        better = self._is_better(progress)
        wanted = last or signal or better or due or (every and step % every == 0)
        seconds = self._checkpoint(progress, ends=bool(last or signal)) if wanted else 0.0
        return stopped_by if last else signal, seconds

    def evaluated(self, progress: Progress, *, ends: bool) -> None:
        """Keep a resumed checkpoint's test accuracy, which was not known when it was taken; a collective.

        `ends`: that evaluation was broken off, and the run with it: it needs a checkpoint of its own to continue from.
        """
        if not (self._is_better(progress) or ends):
            return
        context = self._context
        rated = context.world.from_main(lambda: context.checkpoints.rate(vars(progress)))
        if rated is None:  # it was resumed from elsewhere, or its steps count otherwise here
            self._checkpoint(progress, ends=ends)
        else:
            context.metrics.event("checkpoint", step=progress.step, path=str(rated), seconds=0.0)

    def finish(self) -> None:
        """Wait for the exchange between the ranks that is still under way."""
        self._agreement.finish()

    def _is_better(self, progress: Progress) -> bool:
        accuracy = progress.test_accuracy or 0.0
        better = accuracy > self._best
        self._best = max(self._best, accuracy)
        return better

    def _checkpoint(self, progress: Progress, *, ends: bool) -> float:
        context, started = self._context, time.monotonic()
        content = capture(context.parts, progress, context.world)
        path, problem = context.world.from_main(lambda: self._write(content or b"", progress, ends=ends))
        self._last, self._requested = time.monotonic(), False
        seconds = self._last - started
        if problem is None:
            self._misses, self._saved = 0, progress.step
            context.metrics.event("checkpoint", step=progress.step, path=str(path), seconds=round(seconds, 3))
        else:
            self._misses += 1
            context.warn(f"checkpoint of step {progress.step} not written: {problem}; {self._before()}")
        return seconds

    def _write(self, content: bytes, progress: Progress, *, ends: bool) -> tuple[Path | None, str | None]:
        """Write a checkpoint; insist on it if the run ends with it, or if it is one too many that fails."""
        context, keep = self._context, self._context.checkpointing.keep
        too_many = self._misses + 1 >= MOST_MISSES
        if not (ends or too_many):
            try:
                return context.checkpoints.write(content, vars(progress), keep=keep), None
            except OSError as error:
                return None, reason(error)
        try:
            return insist(context.checkpoints, content, vars(progress), keep=keep, say=context.warn), None
        except UnsavedError as problem:
            what = f"{MOST_MISSES} checkpoints in a row, the last one" if too_many else "the last checkpoint,"
            raise UserError(
                f"{what} of step {progress.step}, could not be saved: {problem}; {self._before()}; "
                "make room or mend the disk, then resume",
                exit_code=4,
            ) from problem

    def _before(self) -> str:
        """Return what there is instead of the checkpoint that could not be written."""
        return f"the one of step {self._saved} was saved" if self._saved else "none was saved before it"
