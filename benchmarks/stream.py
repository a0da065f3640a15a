"""Large JPEG images decoded and cropped while training: the number of workers, tuned or fixed."""

import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.result import Chart, Curve, Ratio, Result, Row, ratio
from benchmarks.turns import in_turn
from trainer.bench.made_images import make_images
from trainer.bench.measure import Endless, Naive, measure_streamed, naive_folder
from trainer.data.streaming.image_folder import MEAN, STD
from trainer.data.streaming.streamed import Choice
from trainer.distributed.cores import free_cores
from trainer.distributed.malloc import keep_freed_memory

BATCH, SIZE = 64, 224
_IMAGES = 128
LOAD = 0.7
"""Of the best rate: what the calibrated step asks for."""
_MOST_WORKERS = 64
_AUTO = "streamed, workers chosen by itself"
_NAIVE = "naive: torchvision's ImageFolder, PIL, no workers"
_GOOD = "usual good practice: the same, workers = free cores"


def measure(quick: bool) -> Result:
    """Measure fixed numbers of workers beside the tuned one, and how long a step that asks for less has to wait."""
    rounds, seconds, steps = (3, 0.5, 15) if quick else (5, 0.9, 25)
    tried = sweep(free_cores(), quick=quick)
    keep_freed_memory()
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="images-")))
        make_images(root, count=_IMAGES)
        choices: list[Choice] = []
        auto = measure_streamed(root, workers=None, batch=BATCH, size=SIZE, report=choices.append)
        stack.callback(auto.close)
        auto.settle()
        print(f"  chosen: {auto.workers} workers", flush=True)
        ways = _ways(root, auto, stack, seconds, tried)
        rates = in_turn(ways, rounds, unit="images/s")
        best = max(statistics.median(values) for way, values in rates.items() if way in map(_streamed, tried))
        step = BATCH / (LOAD * best)
        wait = {"waiting": lambda: 100 * auto.waiting(step=step, steps=steps)}
        waits = in_turn(wait, 1 if quick else rounds, unit="%")["waiting"]
    return _result(rates, waits, step, choices, tried)


def sweep(cores: int, *, quick: bool = False) -> tuple[int, ...]:
    """Return the fixed numbers of workers to measure with this many free cores.

    Each up to 4, then doublings up to twice the cores.

    `quick`: none, one for each core, and two.
    """
    most = min(2 * cores, _MOST_WORKERS)
    if quick:
        return tuple(sorted({0, min(cores, _MOST_WORKERS), most}))
    doublings = {2**power for power in range(3, most.bit_length()) if 2**power <= most}
    return tuple(sorted({*range(5), *doublings, *({min(cores, _MOST_WORKERS), most} if cores > 4 else ())}))


def _ways(
    root: Path, auto: Endless, stack: ExitStack, seconds: float, tried: Sequence[int]
) -> dict[str, Callable[[], float]]:
    naive, good = naive_folder(root, size=SIZE, batch=BATCH), _good_practice(root)
    ways: dict[str, Callable[[], float]] = {
        _NAIVE: lambda: naive.rate(seconds),
        _GOOD: lambda: good.rate(seconds),
    }
    for workers in tried:
        source = measure_streamed(root, workers=workers, batch=BATCH, size=SIZE)
        stack.callback(source.close)
        ways[_streamed(workers)] = lambda source=source: source.rate(seconds)  # type: ignore[misc]
    return {**ways, _AUTO: lambda: auto.rate(seconds)}


def _good_practice(root: Path) -> Naive:
    """As `naive_folder`, with a worker for each free core."""
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    steps = [
        transforms.RandomCrop(SIZE, pad_if_needed=True),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ]
    return Naive(ImageFolder(str(root / "train"), transforms.Compose(steps)), BATCH, workers=free_cores())


def _streamed(workers: int) -> str:
    return f"streamed, {workers} worker{'' if workers == 1 else 's'}"


def _result(
    rates: dict[str, tuple[float, ...]],
    waits: tuple[float, ...],
    step: float,
    choices: Sequence[Choice],
    swept: Sequence[int],
) -> Result:
    rows = {way: Row(label=way, unit="images/s", values=values) for way, values in rates.items()}
    fixed = [rows[_streamed(workers)] for workers in swept]
    waiting = Row(label="waiting for images", unit="% of a step's time", values=waits)
    tried = ", ".join(f"{workers}: {rate:,.0f}" for each in choices for workers, rate in sorted(each.rates.items()))
    curve = tuple((float(workers), row.median) for workers, row in zip(swept, fixed, strict=True))
    return Result(
        name="stream",
        title="Large images, decoded as they are needed",
        command="make bench ONLY=stream",
        rows=(*rows.values(), waiting),
        ratios=(
            ratio("chosen / best fixed number", rows[_AUTO], max(fixed, key=lambda row: row.median), least=0.90),
            ratio("chosen / no workers", rows[_AUTO], fixed[0], least=1.0),
            ratio("chosen / naive", rows[_AUTO], rows[_NAIVE]),
            ratio("chosen / usual good practice", rows[_AUTO], rows[_GOOD]),
            Ratio(label="waiting, % of a step's time", value=waiting.median, most=2),
        ),
        charts=(
            Chart(
                name="stream",
                title="Images per second by number of workers",
                x="workers",
                y="images/s",
                curves=(Curve(label="streamed", points=curve),),
            ),
        ),
        notes=(
            f"{_IMAGES} made-up photographs, JPEG files of 512 to 768 pixels an edge and 70 to 150 kB, read again "
            "and again under many names: they lie in the page cache, no disk is measured; "
            f"random crops to {SIZE} and flips, batches of {BATCH} normalized float images. In its first "
            f"seconds it tried {tried or 'nothing'} (workers: images/s).",
            f"Waiting: with a step of {1000 * step:.0f} ms that needs no CPU, so that it asks for {LOAD:.0%} of the "
            "best rate.",
        ),
    )
