"""Images per second of each way of feeding a small data set, and the share of a training step that feeding takes.

The ways are those that `python -m trainer bench-input` measures, by the same functions.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

import torch

from benchmarks import naive
from benchmarks.compute import Setting, Steps
from benchmarks.result import Ratio, Result, Row, ratio
from benchmarks.turns import in_turn
from trainer.bench.measure import Source, measure_resident, naive_arrays
from trainer.data.published import tensors
from trainer.distributed.cores import free_cores
from trainer.distributed.malloc import keep_freed_memory

BATCH = 512
_REPETITIONS, _QUICK_REPETITIONS = 5, 2
_SECONDS, _QUICK_SECONDS = 0.8, 0.4
"""Of one measurement."""
_STEPS = 40
"""Of one measurement of the share."""
_NETWORKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("default network", ()),
    ("small-cnn", ("--model", "small-cnn")),
)


def measure(quick: bool) -> Result:
    """Rates in turn, and the share of a step. Raises RingmasterError."""
    repetitions, seconds = (_QUICK_REPETITIONS, _QUICK_SECONDS) if quick else (_REPETITIONS, _SECONDS)
    rates, ratios = _rates(repetitions, seconds)
    steps, shares = _shares(_NETWORKS[: 1 if quick else None], repetitions)
    return Result(
        name="input",
        title="Input of a small data set",
        command="make bench ONLY=input",
        rows=(*rates, *steps),
        ratios=(*ratios, *shares),
        notes=(
            f"Fashion-MNIST, batches of {BATCH} normalized images, one process, in turn. Crop and flip: random "
            "crops of the image padded by two pixels, and random mirroring. Naive: transforms of one PIL image at "
            "a time, as torchvision's data sets do; good practice: the same in as many workers as there are free "
            "cores. Input's share is that within training steps, one after the other with their forward and backward "
            f"pass and optimizer; each value is the mean of {_STEPS} steps.",
        ),
    )


def _rates(repetitions: int, seconds: float) -> tuple[tuple[Row, ...], tuple[Ratio, ...]]:
    """Measure the images per second of each way."""
    keep_freed_memory()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = tensors.load("fashion-mnist", data_dir=naive.DATA, own_copy=None, seed=0, say=print)
    sources: dict[str, Source] = {
        "naive": naive_arrays(data, batch=BATCH, augmented=False),
        "good practice": naive_arrays(data, batch=BATCH, augmented=False, workers=free_cores()),
        "resident": measure_resident(data, batch=BATCH, augmented=False, device=device),
        "naive, crop and flip": naive_arrays(data, batch=BATCH, augmented=True),
        "resident, crop and flip": measure_resident(data, batch=BATCH, augmented=True, device=device),
    }
    with ExitStack() as stack:
        ways: dict[str, Callable[[], float]] = {}
        for label, source in sources.items():
            stack.callback(source.close)
            ways[label] = partial(source.rate, seconds)
        values = in_turn(ways, repetitions, unit="images/s")
    rows = {label: Row(label=label, unit="images/s", values=each) for label, each in values.items()}
    return tuple(rows.values()), (
        ratio("resident / naive", rows["resident"], rows["naive"], least=100),
        ratio("the same, crop and flip", rows["resident, crop and flip"], rows["naive, crop and flip"], least=50),
    )


def _shares(
    networks: Sequence[tuple[str, tuple[str, ...]]], repetitions: int
) -> tuple[tuple[Row, ...], tuple[Ratio, ...]]:
    """Measure the milliseconds of a step and of the input within it, and the input's share (0..1) of the step."""
    rows: list[Row] = []
    shares: list[Ratio] = []
    for label, flags in networks:
        with Steps(Setting(flags=(*flags, "--batch-size", str(BATCH)))) as process:
            parts = [process.parts(_STEPS) for _ in range(repetitions)]
        steps = Row(label=f"{label}: a step", unit="ms", values=tuple(1000 * sum(each.values()) for each in parts))
        within = Row(label=f"{label}: input in it", unit="ms", values=tuple(1000 * each["input"] for each in parts))
        print(f"  {label}: input {within.median:.3f} ms of a step of {steps.median:.1f} ms", flush=True)
        rows += [steps, within]
        shares.append(ratio(f"{label}: input / step", within, steps, most=0.03))
    return tuple(rows), tuple(shares)
