"""The same small network, batch, rate and epochs: the naive loop, the bundled trainer, and its steps' bare compute."""

from collections.abc import Callable, Sequence

from benchmarks import naive, step_choices, trainings
from benchmarks.compute import Setting, Steps
from benchmarks.result import Ratio, Result, Row, ratio
from benchmarks.turns import in_turn
from trainer.data.published import fetch

FLAGS = (
    *("--model", "tutorial-cnn", "--batch-size", "64", "--weight-decay", "0"),
    *("--lr", "0.001", "--schedule", "constant", "--warmup", "0"),
)
"""The tutorial's setting, in the trainer's words."""
_REPETITIONS, _QUICK_REPETITIONS = 5, 1
_GOOD_ROUNDS = 2
"""Of the usual good practice: time is short."""
_NAIVE, _OURS, _PURE = "naive loop", "bundled trainer", "pure compute of the same steps"
_GOOD = "usual good practice (workers, channels_last)"


def measure(quick: bool) -> Result:
    """Seconds of an epoch in each way, what the choices bring, and where the time goes. Raises RingmasterError."""
    fetch.ensure("fashion-mnist", data_dir=naive.DATA, own_copy=None, say=print)
    repetitions = _QUICK_REPETITIONS if quick else _REPETITIONS
    loops, accuracies = _loops(repetitions)
    by_label = {row.label: row for row in loops}
    rows, notes = step_choices.breakdown("default network", (), 1 if quick else 2)
    ratios: tuple[Ratio, ...] = ()
    if not quick:
        parts, tutorial_notes = step_choices.breakdown("tutorial CNN", FLAGS, 2)
        chosen, ratios = step_choices.choices(repetitions)
        rows, notes = (*rows, *parts, *chosen), (*notes, *tutorial_notes)
    return Result(
        name="step",
        title="A training step",
        command="make bench ONLY=step",
        rows=(*loops, *accuracies, *rows),
        ratios=(
            ratio("naive loop / bundled trainer", by_label[_NAIVE], by_label[_OURS], least=2.0),
            ratio("usual good practice / bundled trainer", by_label[_GOOD], by_label[_OURS]),
            ratio("bundled trainer / pure compute", by_label[_OURS], by_label[_PURE], most=1.10),
            _accuracy_gap(accuracies),
            *ratios,
        ),
        notes=(
            "One epoch from its first step on: tutorial CNN (6-16-120-84), batch 64, SGD 0.001 with momentum 0.9 (the "
            "reference loops' plain, as published; the trainer's Nesterov), one process, evaluation not counted; each "
            "round with another seed. The reference loops' epoch has 938 steps, the others' 937. Good practice was "
            f"measured in the first {_GOOD_ROUNDS} rounds at most.",
            *notes,
        ),
    )


def _loops(repetitions: int) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Measure the seconds of one epoch, and the test accuracies after it."""
    reached: dict[str, list[float]] = {_NAIVE: [], _GOOD: [], _OURS: []}

    def trained(way: str, train: Callable[[int], trainings.Training]) -> float:
        training = train(len(reached[way]))
        reached[way].append(training.accuracies[-1])
        return training.seconds[0]

    def reference(way: str) -> Callable[[int], trainings.Training]:
        return lambda seed: naive.train(naive.Reference(way=way, seed=seed))

    with Steps(Setting(flags=FLAGS)) as steps:
        count = steps.batches()
        ways: dict[str, Callable[[], float]] = {
            _NAIVE: lambda: trained(_NAIVE, reference(naive.NAIVE)),
            _GOOD: lambda: trained(_GOOD, reference(naive.GOOD_PRACTICE)),
            _OURS: lambda: trained(_OURS, lambda seed: _trainer(seed)),
            _PURE: lambda: steps.seconds(count),
        }
        seconds = in_turn(ways, repetitions, unit="s", fewer={_GOOD: _GOOD_ROUNDS})
    return (
        tuple(Row(label=label, unit="s/epoch", values=values) for label, values in seconds.items()),
        tuple(Row(label=_accuracy(way), unit="", values=tuple(each)) for way, each in reached.items()),
    )


def _accuracy_gap(accuracies: Sequence[Row]) -> Ratio:
    """Return the difference of the medians over the seeds; the seeds alone make a difference of a point."""
    by_label = {row.label: row.median for row in accuracies}
    gap = 100 * (by_label[_accuracy(_OURS)] - by_label[_accuracy(_NAIVE)])
    return Ratio(label="accuracy, ours minus naive, points", value=gap, least=-1.0)


def _accuracy(way: str) -> str:
    return f"{way}: test accuracy"


def _trainer(seed: int) -> trainings.Training:
    return trainings.train((*FLAGS, "--epochs", "1", "--seed", str(seed)))
