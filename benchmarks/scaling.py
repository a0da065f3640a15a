"""Two nodes of one core each (of one GPU each, if there are two) against one: how much faster, and as accurate?"""

import statistics
from collections.abc import Sequence

from benchmarks import trainings
from benchmarks.naive import DATA
from benchmarks.result import Chart, Curve, Ratio, Result, Row
from benchmarks.trainings import Node, Training
from trainer.data.published import fetch

MAIN_BATCH = 512
CURVE = (64, 256, 1024)
_EPOCHS, _QUICK_EPOCHS = 4, 2
"""Of each training at the main batch; the first one warms up and gives no rate."""
_SEEDS = 2
_CURVE_IMAGES = 60_000
"""Per node, of each training behind the curve (twice that with weak scaling): for five records, of a second each."""
_NAMES = ("one node", "two nodes")
_APART = "two nodes that exchange nothing"
"""A training of its own on each: what cores that share caches, memory and power give, without DDP and waiting."""


def measure(quick: bool) -> Result:
    """Measure images per second and accuracy of both, for some global batches.

    Raises:
        RingmasterError: a training failed.
    """
    fetch.ensure("fashion-mnist", data_dir=DATA, own_copy=None, say=print)
    devices = trainings.own_devices()
    if len(devices) < 2:
        return _result(rows=(Row(label="two nodes", unit="", values=(), note="n/a: needs two cores or two GPUs"),))
    places = (devices[:1], devices[:2])
    epochs = _QUICK_EPOCHS if quick else _EPOCHS
    rounds, apart = _rounds(places, 1 if quick else _SEEDS, epochs, with_apart=not quick)
    main = [
        _rate_row(f"{name}, global batch {MAIN_BATCH}", [rate for one in trained for rate in one.warm_rates])
        for name, trained in zip(_NAMES, rounds, strict=True)
    ]
    speedups = {MAIN_BATCH: main[1].median / main[0].median}
    apart_row = _rate_row(f"{_APART}, batch {MAIN_BATCH // 2} each", apart)
    curve: list[Row] = []
    for batch in () if quick else CURVE:
        pair = [_rate_row(f"{name}, global batch {batch}", _short(place, batch).rates)
                for name, place in zip(_NAMES, places, strict=True)]  # fmt: skip
        speedups[batch] = pair[1].median / pair[0].median
        curve += pair
    if not quick:
        flags = ("--scaling", "weak")
        curve.append(
            _rate_row(f"two nodes, weak scaling, {MAIN_BATCH} for each", _short(places[1], MAIN_BATCH, *flags).rates)
        )
    accuracies = [
        Row(label=f"{name}, test accuracy after {epochs} epochs", unit="", values=tuple(t.accuracies[-1] for t in done))
        for name, done in zip(_NAMES, rounds, strict=True)
    ]
    return _result(
        rows=(*main, *([apart_row] if apart else ()), *accuracies, *curve),
        speedups=speedups,
        apart=apart_row.median / main[0].median if apart else None,
    )


def _rounds(
    places: Sequence[Sequence[Node]], count: int, epochs: int, *, with_apart: bool
) -> tuple[list[list[Training]], list[float]]:
    """Run trainings of `count` seeds at the main batch in each place, in turn.

    Return them, and the rates of two that exchange nothing.
    """
    rounds: list[list[Training]] = [[] for _ in places]
    apart: list[float] = []
    for seed in range(count):
        flags = ("--epochs", str(epochs), "--seed", str(seed))
        for name, place, trained in zip(_NAMES, places, rounds, strict=True):
            trained.append(trainings.train((*flags, "--batch-size", str(MAIN_BATCH)), place))
            rate, accuracy = statistics.median(trained[-1].warm_rates), trained[-1].accuracies[-1]
            print(f"  round {seed + 1}/{count}: {name}: {rate:,.0f} images/s, accuracy {accuracy:.4f}", flush=True)
        if not with_apart:
            continue
        both = trainings.train_apart((*flags, "--batch-size", str(MAIN_BATCH // 2)), places[1])
        apart += [sum(pair) for pair in zip(*(one.warm_rates for one in both), strict=True)]
        print(f"  round {seed + 1}/{count}: {_APART}: {apart[-1]:,.0f} images/s", flush=True)
    return rounds, apart


def _short(place: Sequence[Node], batch: int, *more: str) -> Training:
    steps = str(len(place) * _CURVE_IMAGES // batch)
    flags = ("--batch-size", str(batch), "--max-steps", steps, "--max-val-items", "64", *more)
    training = trainings.train(flags, place)
    rate = statistics.median(training.rates)
    print(f"  {_NAMES[len(place) - 1]}, batch {batch}{' '.join(('', *more))}: {rate:,.0f} images/s", flush=True)
    return training


def _rate_row(label: str, rates: Sequence[float]) -> Row:
    return Row(label=label, unit="images/s", values=tuple(rates))


def _result(*, rows: Sequence[Row], speedups: dict[int, float] | None = None, apart: float | None = None) -> Result:
    """`apart`: what two nodes that exchange nothing do together, over one node."""
    ordered = sorted((speedups or {}).items())
    ratios = [
        Ratio(
            label=f"two nodes / one node, global batch {batch}",
            value=value,
            least=1.8 if batch == MAIN_BATCH else None,
        )
        for batch, value in ordered
    ]
    if apart is not None:
        ratios.append(Ratio(label=f"{_APART} / one node", value=apart))
    chart = Chart(
        name="scaling",
        title="Two nodes against one",
        x="global batch",
        y="times as many images/s",
        curves=(Curve(label="two nodes / one node", points=tuple((float(batch), value) for batch, value in ordered)),),
        logarithmic=True,
    )
    return Result(
        name="scaling",
        title="Two nodes against one",
        command="make bench ONLY=scaling",
        rows=tuple(rows),
        ratios=tuple(ratios),
        charts=(chart,) if ordered else (),
        notes=(
            "A node here is a torchrun of its own with one core of this machine to itself (one GPU, where there are "
            "two), gradients by Gloo over loopback (by NCCL between GPUs); the default recipe's network and flags.",
            f"Global batch {MAIN_BATCH}: each value is an epoch of 60,000 images after a training's first, trainings "
            "in turn, each round with another seed. Nodes that exchange nothing: the same of a training on each, their "
            "rates added. Other batches: one training each, each value one second of it, without its start.",
        ),
    )
