"""`python -m trainer bench-input`: images per second of each way of feeding training, on this machine."""

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from trainer.bench import measure
from trainer.bench.made_images import make_images
from trainer.bench.measure import Source
from trainer.config.flags import LEAST_EDGE, MOST_EDGE, PUBLISHED_DATASETS, Parser, whole
from trainer.data.published import tensors
from trainer.data.streaming import image_folder
from trainer.data.streaming.gpu_decode import gpu_decodes
from trainer.distributed.malloc import keep_freed_memory
from trainer.errors import UserError

SECONDS, QUICK_SECONDS = 1.0, 0.4
"""The time of one measurement of one way."""
ROUNDS, QUICK_ROUNDS = 5, 3
WORKERS = (0, 1, 2, 3, 4)
SMALL_DATASETS = (*PUBLISHED_DATASETS, "synthetic")
"""Those that stay in memory: every data set but a folder of images."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """The result of one way."""

    way: str
    rates: tuple[float, ...]
    """Images per second, one value per round."""

    def __str__(self) -> str:
        low, high = min(self.rates), max(self.rates)
        median = statistics.median(self.rates)
        return f"{self.way:32} {median:13,.0f} {low:13,.0f} {high:13,.0f}   {len(self.rates)}"


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="trainer bench-input", description=__doc__, allow_abbrev=False)
    parser.add_argument("--data", type=Path, help="a folder of images: train/<class>/… (default: made-up photographs)")
    parser.add_argument("--dataset", choices=SMALL_DATASETS, default="fashion-mnist")
    parser.add_argument("--data-dir", type=Path, default=Path("data"), help="where that data set is (default ./data)")
    parser.add_argument("--batch-size", type=whole(1), default=512, help="of small images (default 512)")
    parser.add_argument(
        "--image-size", type=whole(LEAST_EDGE, MOST_EDGE), default=224, help="crops of large images (default 224)"
    )
    parser.add_argument("--image-batch-size", type=whole(1), default=64, help="of large images (default 64)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--debug", action="store_true", help="tracebacks instead of one-line errors")
    return parser


def main(argv: Sequence[str], say: Callable[[str], None] = print) -> int:
    """Measure and print; return 0.

    Raises:
        UserError: exit code 2.
    """
    options = _parser().parse_args(list(argv))
    keep_freed_memory()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rounds, seconds = (QUICK_ROUNDS, QUICK_SECONDS) if options.quick else (ROUNDS, SECONDS)
    data = tensors.load(options.dataset, data_dir=options.data_dir, own_copy=None, seed=0, say=say)
    _check_batch("--batch-size", options.batch_size, len(data.train_images))
    say(f"{'images per second':32} {'median':>13} {'least':>13} {'most':>13}   n")
    say(f"{options.dataset}, batches of {options.batch_size}, {device.type}:")
    with ExitStack() as stack:
        lines = in_rounds(_small(data, options.batch_size, device), rounds, seconds, stack, say)
    with ExitStack() as stack:
        root = options.data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="images-")))
        if options.data is None:
            make_images(root)
        folder = image_folder.find(root)
        _check_batch("--image-batch-size", options.image_batch_size, len(folder.train))
        say(f"{len(folder.train):,} files cropped to {options.image_size}, batches of {options.image_batch_size}:")
        large = _large(root, options.image_size, options.image_batch_size, device, say)
        lines += in_rounds(large, rounds, seconds, stack, say)
    if options.json:
        _write(options.json, lines)
    return 0


def _check_batch(flag: str, batch: int, images: int) -> None:
    if batch > images:
        raise UserError(
            f"argument {flag}: a batch of {batch} is more than the {images} training images; choose at most {images}",
            exit_code=2,
        )


def in_rounds(
    ways: dict[str, Callable[[], Source]], rounds: int, seconds: float, stack: ExitStack, say: Callable[[str], None]
) -> list[Line]:
    """Measure A B C A B C …, so that a noisy minute affects all ways; `stack` closes the sources."""
    sources = {}
    for way, make in ways.items():
        sources[way] = make()
        stack.callback(sources[way].close)
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, source in sources.items():
            rates[way].append(source.rate(seconds))
    lines = [Line(way=way, rates=tuple(values)) for way, values in rates.items()]
    for line in lines:
        say(str(line))
    return lines


def _small(data: tensors.Dataset, batch: int, device: torch.device) -> dict[str, Callable[[], Source]]:
    def naive(augmented: bool) -> Callable[[], Source]:
        return lambda: measure.naive_arrays(data, batch=batch, augmented=augmented)

    def resident(augmented: bool) -> Callable[[], Source]:
        return lambda: measure.measure_resident(data, batch=batch, augmented=augmented, device=device)

    return {
        "naive": naive(False),
        "naive, crop and flip": naive(True),
        "resident": resident(False),
        "resident, crop and flip": resident(True),
    }


def _large(
    root: Path, size: int, batch: int, device: torch.device, say: Callable[[str], None]
) -> dict[str, Callable[[], Source]]:
    def streamed(workers: int, raw: bool = False) -> Callable[[], Source]:
        return lambda: measure.measure_streamed(root, workers=workers, batch=batch, size=size, device=device, raw=raw)

    def tuned() -> Source:
        source = measure.measure_streamed(root, workers=None, batch=batch, size=size, device=device)
        source.settle()
        say(f"(auto chose {source.workers} workers)")
        return source

    ways: dict[str, Callable[[], Source]] = {
        "naive, large images": lambda: measure.naive_folder(root, size=size, batch=batch)
    }
    ways |= {f"streamed, {workers} workers": streamed(workers) for workers in WORKERS}
    if gpu_decodes(device):
        ways["streamed, GPU decodes"] = streamed(1, raw=True)
    return {**ways, "streamed, auto": tuned}


def _write(path: Path, lines: Sequence[Line]) -> None:
    content = {line.way: list(line.rates) for line in lines}
    try:
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"argument --json: {path}: {error.strerror}", exit_code=2) from error
