"""The table of the report the project grew out of: no parallel, DataParallel, DDP on one node and on two.

There, more GPUs were slower and reached less: images were fed one by one, and the batch grew at an unchanged learning
rate. Here every row trains the same network to the same accuracy, and what counts is the seconds until then.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from benchmarks import naive, trainings
from benchmarks.recipe import GOOD, QUICK, accuracy_chart, mean_curve, time_row
from benchmarks.result import Curve, Ratio, Result, Row, ratio
from benchmarks.trainings import Node, Training
from trainer.data.published import fetch

THEIRS, ALONE, DP, DDP_ONE, DDP_TWO = (
    "their way: one process, PIL, no workers",
    "ours, no parallel",
    "DataParallel",
    "DDP, one node",
    "DDP, two nodes",
)
_EPOCHS = "2"
"""Of each training of ours: the shortest that passes 90 % with every seed."""
_ROUNDS = 3
_NAIVE_EPOCHS = 4


@dataclass(frozen=True, kw_only=True)
class Way:
    """One row of the report's table."""

    label: str
    nodes: tuple[Node, ...] = ()
    flags: tuple[str, ...] = ()
    lacks: str = ""
    """Why it can't be measured here."""


def ways(devices: Sequence[Node]) -> tuple[Way, ...]:
    """Return our rows on these devices, a core or a GPU each; two nodes have half of them each."""
    gpus = bool(devices[0].gpus)
    few = "" if len(devices) > 1 else "n/a: needs two GPUs" if gpus else "n/a: needs two cores"
    lacks_dp = few if gpus else "n/a: no GPU"
    half = len(devices) // 2
    halves = () if few else (trainings.merged(devices[:half]), trainings.merged(devices[half : 2 * half]))
    all_in_one = trainings.merged(devices)
    one_process = Node(cores=all_in_one.cores, gpus=all_in_one.gpus)
    return (
        Way(label=ALONE, nodes=tuple(devices[:1])),
        Way(label=DP, nodes=(one_process,), flags=("--strategy", "dp"), lacks=lacks_dp),
        Way(label=DDP_ONE, nodes=(all_in_one,), lacks=few),
        Way(label=DDP_TWO, nodes=halves, lacks=few),
    )


def measure(quick: bool) -> Result:
    """Train in every way, in turn, the naive one once and not in a quick run. Raises RingmasterError: one failed."""
    fetch.ensure("fashion-mnist", data_dir=naive.DATA, own_copy=None, say=print)
    devices = trainings.own_devices()
    theirs = None if quick else _their_way(devices[0])
    chosen = ways(devices)
    done: dict[str, list[Training]] = {way.label: [] for way in chosen}
    rounds = 1 if quick else _ROUNDS
    for seed in range(rounds):
        for way in chosen:
            if not way.lacks:
                training = trainings.train(("--epochs", _EPOCHS, "--seed", str(seed), *way.flags), way.nodes)
                done[way.label].append(training)
                outcome = f"accuracy {training.accuracies[-1]:.4f} after {training.ends[-1]:.1f} s"
                print(f"  round {seed + 1}/{rounds}: {way.label}: {outcome}", flush=True)
    rows = list(rows_of(THEIRS, [theirs] if theirs else [], lacks="" if theirs else QUICK))
    for way in chosen:
        rows += rows_of(way.label, done[way.label], lacks=way.lacks)
    return Result(
        name="report",
        title="No parallel, DataParallel, DDP on one node and two",
        command="make bench ONLY=report",
        rows=tuple(rows),
        ratios=ratios_of(theirs, rows),
        charts=(accuracy_chart("report", _curves(theirs, done)),),
        notes=_notes(devices, rounds),
    )


def _curves(theirs: Training | None, done: Mapping[str, Sequence[Training]]) -> list[Curve]:
    every = {THEIRS: [theirs] if theirs else [], **done}
    return [mean_curve(label, trainings) for label, trainings in every.items() if trainings]


def _their_way(device: Node) -> Training:
    """Train the naive loop with the recipe's network on one core, as in the report, until it reaches 90 %."""
    setting = naive.Reference(model="fast-cnn", epochs=_NAIVE_EPOCHS, stop_at=GOOD)
    with trainings.confined(device):
        return naive.train(setting, say=lambda line: print(f"  their way: {line}", flush=True))


def rows_of(label: str, done: Sequence[Training], *, lacks: str = "") -> tuple[Row, ...]:
    """Return a way's rows: seconds to equal accuracy, the test loss there, the last accuracy, images per second."""
    if lacks:
        return (Row(label=f"{label}: to 90 %", unit="s", values=(), note=lacks),)
    losses = [one.test_losses[epoch] for one in done if (epoch := one.epoch_reaching(GOOD)) is not None]
    rates = [statistics.median(one.warm_rates) for one in done if one.warm_rates]
    rows = [
        time_row(f"{label}: to 90 %", done, GOOD),
        Row(label=f"{label}: test loss there", unit="", values=tuple(losses), note="" if losses else "not reached"),
        Row(label=f"{label}: test accuracy at the end", unit="", values=tuple(one.accuracies[-1] for one in done)),
    ]
    return (*rows, Row(label=f"{label}: speed", unit="images/s", values=tuple(rates))) if rates else tuple(rows)


def ratios_of(theirs: Training | None, rows: Sequence[Row]) -> tuple[Ratio, ...]:
    """Return ratios of the seconds to 90 %: each row against the one before it, then each against no parallel.

    Their way's is a lower bound where it never got there. Two nodes may be parts of the very devices that one node has:
    nothing is promised there.
    """
    times = {row.label: row for row in rows}
    to_goal = [(label, times[f"{label}: to 90 %"]) for label in (THEIRS, ALONE, DP, DDP_ONE, DDP_TWO)]
    if theirs and not to_goal[0][1].values:
        lower = Row(label=THEIRS, unit="s", values=(theirs.ends[-1],))
        to_goal[0] = (f"{THEIRS} (never got there: at least this many times)", lower)
    measured = [(label, row) for label, row in to_goal if row.values]
    ratios = [
        ratio(f"{before} / {label}", earlier, row, least=None if label == DDP_TWO else 1.0)
        for (before, earlier), (label, row) in pairwise(measured)
    ]
    alone = next((number for number, (label, _) in enumerate(measured) if label == ALONE), len(measured))
    ratios += [ratio(f"{ALONE} / {label}", measured[alone][1], row) for label, row in measured[alone + 2 :]]
    return tuple(ratios)


def _notes(devices: Sequence[Node], rounds: int) -> tuple[str, ...]:
    gpus = bool(devices[0].gpus)
    same = ""
    if not gpus and len(devices) == 2:
        same = " One node of two ranks and two nodes of one use the same two cores here: they are to be alike."
    return (
        "What counts is seconds of training until the end of the first epoch with 90 % test accuracy, in one call on "
        "one machine. Every row trains the default recipe's network on Fashion-MNIST; a device is one "
        f"{'GPU' if gpus else 'core'}, one for the first two rows, all for the others.{same}",
        f"Their way: batch 64, SGD 0.001 with plain momentum 0.9, fp32, until 90 % or {_NAIVE_EPOCHS} epochs, n = 1. "
        f"Ours: the recipe in {_EPOCHS} epochs, the same global batch for every row (strong scaling), n = {rounds}, "
        "each with another seed; speed is the last epoch's. Weak scaling is in `make bench ONLY=scaling`. Test losses "
        "compare among our rows only, whose labels are smoothed.",
        "The report's second table, how many workers decode images, is `make bench ONLY=stream`.",
    )
