"""The default recipe as `python -m trainer` runs it, and its shortest forms, against the naive loop."""

import statistics
from collections.abc import Sequence

from benchmarks import naive, trainings
from benchmarks.result import Chart, Curve, Ratio, Result, Row
from benchmarks.trainings import Training
from trainer.data.published import fetch

GOOD, BETTER = 0.90, 0.925
"""The test accuracies to which time is measured."""
QUICK = "not in a quick run"
_SHORT = "2"
"""Epochs of the shortest form."""
_NAIVE_EPOCHS = 40
_FASTER = 8.0
"""The goal: this many times faster than the naive loop."""


def measure(quick: bool) -> Result:
    """Seconds of training to 90 and 92.5 % and the accuracy reached. Raises RingmasterError: a training failed."""
    fetch.ensure("fashion-mnist", data_dir=naive.DATA, own_copy=None, say=print)
    seeds = 1 if quick else 5
    whole = [_train(seed, seeds) for seed in range(seeds)]
    rows = list(whole_rows(whole))
    reference = None
    if not quick:
        rows += short_rows(_SHORT, [_train(seed, seeds, "--epochs", _SHORT) for seed in range(seeds)])
        setting = naive.Reference(epochs=_NAIVE_EPOCHS, stop_at=GOOD)
        reference = naive.train(setting, say=lambda line: print(f"  naive loop: {line}", flush=True))
    return Result(
        name="recipe",
        title="The default recipe",
        command="make bench ONLY=recipe",
        rows=(*rows, *naive_rows(reference)),
        ratios=(*promises(whole), against_naive(whole, reference)),
        charts=(
            accuracy_chart(
                "recipe",
                [
                    mean_curve("default recipe (mean)", whole),
                    *(mean_curve("naive loop", [one]) for one in _some(reference)),
                ],
            ),
        ),
        notes=(
            "Seconds of training until the end of the first epoch with that accuracy on the 10,000 test images; "
            "start, evaluation and checkpoints are not in them. Each value is another seed.",
            "Naive loop: tutorial CNN (6-16-120-84), PIL images one by one, no workers, SGD 0.001 with plain "
            f"momentum 0.9, batch 64, until 90 % or {_NAIVE_EPOCHS} epochs; n = 1.",
        ),
    )


def _train(seed: int, seeds: int, *flags: str) -> Training:
    training = trainings.train(("--seed", str(seed), *flags))
    words = " ".join(("default recipe", *flags))
    reached, seconds = training.accuracies[-1], training.ends[-1]
    print(f"  seed {seed + 1}/{seeds}: {words}: accuracy {reached:.4f} after {seconds:.1f} s", flush=True)
    return training


def whole_rows(whole: Sequence[Training]) -> tuple[Row, ...]:
    """Return the rows about complete trainings of the recipe."""
    return (
        time_row("default recipe, training to 90 %", whole, GOOD),
        time_row("default recipe, training to 92.5 %", whole, BETTER),
        Row(label="default recipe, whole training", unit="s", values=tuple(one.ends[-1] for one in whole)),
        Row(label="default recipe, test accuracy", unit="", values=_last(whole), note=_mean(_last(whole))),
    )


def short_rows(epochs: str, short: Sequence[Training]) -> tuple[Row, ...]:
    """Return the rows about the recipe squeezed into fewer epochs."""
    return (
        Row(label=f"--epochs {epochs}, training", unit="s", values=tuple(one.ends[-1] for one in short)),
        Row(label=f"--epochs {epochs}, test accuracy", unit="", values=_last(short), note=_mean(_last(short))),
    )


def naive_rows(reference: Training | None) -> tuple[Row, ...]:
    """Return the rows about the naive loop; None: a quick run leaves it out."""
    if reference is None:
        return (Row(label="naive loop, training to 90 %", unit="s", values=(), note=QUICK),)
    return (
        time_row("naive loop, training to 90 %", [reference], GOOD),
        Row(label="naive loop, test accuracy when it ended", unit="", values=_last([reference])),
    )


def time_row(label: str, done: Sequence[Training], accuracy: float) -> Row:
    """Return the seconds to the accuracy, of the trainings that reached it.

    The note says how many did not, and when they ended. If none did, there are no values, and the note says "> T".
    """
    values = tuple(seconds for one in done if (seconds := one.seconds_to(accuracy)) is not None)
    missed = [one.ends[-1] for one in done if one.seconds_to(accuracy) is None]
    if not missed:
        note = ""
    elif not values:
        note = f"> {min(missed):.0f} s: not reached in {len(done[0].seconds)} epoch(s)"
    else:
        note = f"{len(missed)} of {len(done)} did not get there"
    return Row(label=label, unit="s", values=values, note=note)


def promises(whole: Sequence[Training]) -> tuple[Ratio, ...]:
    """Return the recipe's goals; a mean time is None if a seed never gets there."""
    good, better = (_mean_time(whole, accuracy) for accuracy in (GOOD, BETTER))
    return (
        Ratio(label="mean seconds to 90 %", value=good, most=20),
        Ratio(label="mean seconds to 92.5 %", value=better, most=90),
        Ratio(label="mean test accuracy at the end", value=statistics.fmean(_last(whole)), least=0.925),
    )


def against_naive(whole: Sequence[Training], reference: Training | None) -> Ratio:
    """Return how many times longer the naive loop takes to 90 %; a lower bound if it never got there."""
    label = "naive loop / default recipe, seconds to 90 %"
    if reference is None:
        return Ratio(label=label, value=None, least=_FASTER)
    ours, theirs = _mean_time(whole, GOOD), reference.seconds_to(GOOD)
    if theirs is None:
        label += " (the naive loop never got there: at least this many times)"
        theirs = reference.ends[-1]
    return Ratio(label=label, value=None if ours is None else theirs / ours, least=_FASTER)


def _some(reference: Training | None) -> list[Training]:
    return [] if reference is None else [reference]


def _mean_time(whole: Sequence[Training], accuracy: float) -> float | None:
    times = [one.seconds_to(accuracy) for one in whole]
    reached = [time for time in times if time is not None]
    return statistics.fmean(reached) if len(reached) == len(times) else None


def _last(done: Sequence[Training]) -> tuple[float, ...]:
    return tuple(one.accuracies[-1] for one in done)


def _mean(values: Sequence[float]) -> str:
    spread = f", standard deviation {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"mean {statistics.fmean(values):.4f}{spread}"


def mean_curve(label: str, done: Sequence[Training]) -> Curve:
    """Return the mean accuracy over mean seconds of training, at the end of each epoch that all of them have."""
    ends = zip(*(one.ends for one in done), strict=False)
    accuracies = zip(*(one.accuracies for one in done), strict=False)
    points = tuple((statistics.fmean(x), statistics.fmean(y)) for x, y in zip(ends, accuracies, strict=True))
    return Curve(label=label, points=points)


def accuracy_chart(name: str, curves: Sequence[Curve]) -> Chart:
    """Return the chart of accuracy over training time."""
    return Chart(
        name=name,
        title="Accuracy over training time",
        x="seconds of training",
        y="test accuracy",
        curves=tuple(curves),
        logarithmic=True,
    )
