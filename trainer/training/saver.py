"""When checkpoints are taken, and what follows when they can't be; stopping is taking one and ending."""

import time
from pathlib import Path

from trainer.checkpoint.files import Progress
from trainer.checkpoint.state import capture
from trainer.distributed.agreement import Agreement
from trainer.errors import UserError
from trainer.training.context import Job

MOST_MISSES = 3
"""Checkpoints in a row that may fail to be written before the run gives up."""


class Saver:
    """Decides after each step, on all ranks alike."""

    def __init__(self, job: Job, *, best: float) -> None:
        """`best`: test accuracy, 0..1, that a checkpoint already has."""
        self._job = job
        self._agreement = Agreement(job.world, job.config.timeout)
        self._best = best
        self._misses = 0
        self._last = time.monotonic()
        self._asked = False

    def after_step(self, progress: Progress) -> tuple[int, float]:
        """Takes a checkpoint where one is due: at the last step, a stop, a new best test accuracy, and by the flags.

        Returns the signal that some rank was told to stop by, else 0, and the seconds it took. A collective.
        """
        job, step = self._job, progress.step
        every = job.config.checkpoint_steps
        last = step == job.total_steps
        overdue = every is None and time.monotonic() - self._last >= job.config.checkpoint_seconds
        asks = job.world.is_main and overdue and not self._asked
        self._asked |= asks  # the answer comes a step later; until then one question is enough
        signal, due = self._agreement.exchange([job.stop.number, int(asks)])
        better = (progress.test_accuracy or 0.0) > self._best
        self._best = max(self._best, progress.test_accuracy or 0.0)
        wanted = last or signal or better or due or (every and step % every == 0)
        seconds = self._checkpoint(progress) if wanted else 0.0
        return 0 if last else signal, seconds

    def finish(self) -> None:
        """Waits for what is under way between the ranks."""
        self._agreement.finish()

    def _checkpoint(self, progress: Progress) -> float:
        job, started = self._job, time.monotonic()
        content = capture(job.parts, progress, job.world)
        path, problem = job.world.from_main(lambda: self._write(content or b"", progress))
        self._last, self._asked = time.monotonic(), False
        seconds = self._last - started
        if problem is None:
            self._misses = 0
            job.metrics.event("checkpoint", step=progress.step, path=str(path), seconds=round(seconds, 3))
            return seconds
        self._misses += 1
        job.warn(f"checkpoint of step {progress.step} not written: {problem}; the one before is intact")
        if self._misses == MOST_MISSES:
            with job.world.alike():
                raise UserError(
                    f"{MOST_MISSES} checkpoints in a row could not be written to {job.checkpoints.path}: {problem}; "
                    "make room there, then resume",
                    exit_code=4,
                )
        return seconds

    def _write(self, content: bytes, progress: Progress) -> tuple[Path | None, str | None]:
        try:
            return self._job.checkpoints.write(content, vars(progress), keep=self._job.config.keep), None
        except OSError as error:
            return None, error.strerror or str(error)
