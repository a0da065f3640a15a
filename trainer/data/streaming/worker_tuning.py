"""How many worker processes read a rank's images: found by trials, in the first seconds of training itself.

The numbers around the rank's free cores take turns in feeding real batches to real steps, so the trials compare the
speed of training itself, with everything that competes for the cores. No image is read in vain, and as an image's crop
follows from its place in the epoch, the batches don't depend on who reads them.

A trial is a stretch of an epoch or, if epochs are too short for that, several whole epochs.

This module only decides; `streamed` measures. All ranks have to begin and end a trial at the same batch, so decisions
follow from counts of batches, and from seconds only after all ranks have agreed on them. They try the same number at
the same time, and the slowest rank's time counts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

TRIAL_SECONDS = 0.8
"""How long a trial should measure, at the speed of the first one."""
PILOT_BATCHES = 2
"""Measured first, to know how long a batch takes: set-up distorts a run's first steps too much for more."""
WORTH_A_SECOND_TRIAL = 0.85
"""Of the best rate of the first round; slower numbers are out."""
AS_GOOD = 0.97
"""Of the best rate; the fewest workers that reach this are taken."""
LEAST = 4
"""How many times shorter than planned a trial may be, if there is no room for more."""
ENOUGH = 0.01
"""Share of the time that steps on a GPU may wait for images before more workers are worth trying."""
QUEUED_PER_WORKER = 2
"""Chunks that wait for each worker; torch's own default."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Some consecutive batches that one number of workers feeds."""

    workers: int
    skipped: int
    """The first batches, while the workers start; with 0, measuring begins when the first batch is requested."""
    measured: int
    drained: int = 0
    """The last batches, when there isn't work for all workers any more."""
    whole: bool = False
    """A whole epoch; the first epoch of each number is skipped, because its workers start then."""

    @property
    def batches(self) -> int:
        """The number of all batches in the trial."""
        return self.skipped + self.measured + self.drained


def candidates(cores: int) -> tuple[int, ...]:
    """Return the numbers of workers worth trying with these free cores, likeliest first. 0 = no worker processes."""
    some = range(cores + 2) if cores <= 4 else (0, cores // 4, cores // 2, 3 * cores // 4, cores, 5 * cores // 4)
    return cores, *(number for number in some if number != cores)


def drained(workers: int, chunks: int) -> int:
    """Return how many batches of `chunks` chunks are under way when a trial's last chunk goes to a worker."""
    return 1 + math.ceil(QUEUED_PER_WORKER * workers / chunks) if workers else 0


def best(rates: Mapping[int, Sequence[float]]) -> int:
    """Return the fewest workers whose rate is as good as the highest.

    The best of a number's trials counts: checkpoints and other programs can only slow one down.
    """
    highest = {workers: max(trials) for workers, trials in rates.items()}
    return min(workers for workers, rate in highest.items() if rate >= AS_GOOD * max(highest.values()))


def second_round(rates: Mapping[int, Sequence[float]]) -> list[int]:
    """Return the numbers near the best of the first round, reversed, so that drift affects both ends equally."""
    top = max(max(trials) for trials in rates.values())
    near = [workers for workers, trials in rates.items() if max(trials) >= WORTH_A_SECOND_TRIAL * top]
    return near[::-1] if len(near) > 1 else []


class Tuning:
    """Which number of workers is tried next, and which one is kept."""

    def __init__(self, *, cores: int, competes: bool, chunks: int, epoch: int, fixed: int | None = None) -> None:
        """All arguments are the same on all ranks. `cores`: free for each rank, at least 1.

        `competes`: some rank's training step needs the same cores; `chunks`: chunks in a batch; `epoch`: batches in an
        epoch; `fixed`: this number, without trials.
        """
        self.workers = cores if fixed is None else fixed
        """The number to use now, outside of trials."""
        self.rates: dict[int, list[float]] = {}
        """Batches per second in each number's trials."""
        self._competes, self._chunks, self._epoch = competes, chunks, epoch
        self._waiting = list(candidates(cores)) if fixed is None else []
        self._guess, self._batches, self._rounds = cores, 0, 0
        self._started: int | None = None
        self._spans: list[tuple[int, float, float]] = []

    @property
    def settled(self) -> bool:
        """Whether no more trials will follow."""
        return not self._waiting

    def trial(self, left: int) -> Trial | None:
        """Return what to try on the next of `left` batches; None if there is nothing to try, or too little room."""
        if self.settled:
            return None
        workers = self._waiting[0]
        if self._epochs_are_short:
            if left < self._epoch:  # a resumed run's first epoch
                return None
            started = workers == self._started
            return Trial(workers=workers, skipped=0 if started else left, measured=left if started else 0, whole=True)
        measured = min(self._wanted(workers), self._room(workers, left))
        if measured < self._least(workers):
            return None
        return Trial(workers=workers, skipped=1, measured=measured, drained=drained(workers, self._chunks))

    def record(self, trial: Trial, *, seconds: float, waited: float) -> None:
        """Record the seconds of a trial's measured batches, and how many of them were spent waiting for images."""
        if trial.whole:
            self._record_epoch(trial, seconds, waited)
        elif not self._batches or (not self.rates and seconds < TRIAL_SECONDS / LEAST):
            # That was the pilot, or followed one that was slow only because everything was being set up: once more.
            self._batches = max(PILOT_BATCHES, math.ceil(TRIAL_SECONDS * trial.measured / max(seconds, 1e-6)))
        else:
            self._note(trial.workers, trial.measured, seconds, waited)

    def _record_epoch(self, trial: Trial, seconds: float, waited: float) -> None:
        self._started = trial.workers
        if not trial.measured:
            return
        self._spans.append((trial.measured, seconds, waited))
        batches, seconds, waited = (sum(column) for column in zip(*self._spans, strict=True))
        if seconds >= TRIAL_SECONDS / LEAST:
            self._spans = []
            self._note(trial.workers, int(batches), seconds, waited)

    def _note(self, workers: int, batches: int, seconds: float, waited: float) -> None:
        self._waiting.remove(workers)
        self.rates.setdefault(workers, []).append(batches / max(seconds, 1e-9))
        if not self._competes and workers == self._guess and waited <= ENOUGH * seconds:
            self._waiting = []
        elif self.settled and self._rounds == 0:
            self._rounds, self._waiting = 1, second_round(self.rates)
        self.workers = best(self.rates)

    @property
    def _epochs_are_short(self) -> bool:
        """Whether a stretch of an epoch is too short for some number; all numbers are measured in the same way."""
        numbers = candidates(self._guess) if self._batches else (self._guess,)
        return any(self._room(number, self._epoch) < self._least(number) for number in numbers)

    def _room(self, workers: int, left: int) -> int:
        """Return how many of `left` batches could be measured."""
        return left - 1 - drained(workers, self._chunks)

    def _wanted(self, workers: int) -> int:
        """Return batches that take as long as the others' if its workers are as good; 0 workers count as one."""
        return math.ceil(self._batches * min(1.0, max(workers, 1) / self._guess)) or PILOT_BATCHES

    def _least(self, workers: int) -> float:
        return max(1.0, self._wanted(workers) / LEAST)
