"""What each choice of the trainer's step brings, and where the time of a step goes."""

import os
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from benchmarks import trainings
from benchmarks.compute import PARTS, Setting, Steps
from benchmarks.result import Ratio, Row, ratio
from benchmarks.turns import in_turn
from launcher.local.machine import gpus

DEFAULT = Setting(flags=())
"""The default recipe: its network, batch and number format."""
_BLOCK = 30
"""Steps of one measurement."""
_PARTS_BLOCK = 100
_COMPILED = "torch.compile"


def choices(repetitions: int) -> tuple[tuple[Row, ...], tuple[Ratio, ...]]:
    """Measure the milliseconds of a step, by default and with one choice undone at a time, in turn.

    Return the rows, and what each choice costs.

    Raises:
        RingmasterError: a measuring process failed.
    """
    with ExitStack() as processes:
        base = processes.enter_context(Steps(DEFAULT))
        ways = {"as it is": partial(_milliseconds, base)}
        for label, setting in undone(base.precision()).items():
            steps = processes.enter_context(Steps(setting))
            ways[label] = partial(_milliseconds, steps)
            if label != _COMPILED:
                steps.seconds(1)  # one after the other: they start with all cores
        values = in_turn(ways, repetitions, unit="ms", optional=(_COMPILED,))
    rows = tuple(
        Row(
            label=f"default network: {label}",
            unit="ms/step",
            values=each,
            note="" if each else "failed: what it said stands in the output",
        )
        for label, each in values.items()
    )
    return rows, tuple(ratio(f"{row.label} / default", row, rows[0]) for row in rows[1:])


def undone(precision: str) -> dict[str, Setting]:
    """Return the default with one choice made otherwise, by the name of that choice.

    Args:
        precision: the default's number format.
    """
    other = "fp32" if precision != "fp32" else "bf16"
    settings = {
        f"{other} in place of {precision}": replace(DEFAULT, flags=("--precision", other)),
        "contiguous in place of channels_last": replace(DEFAULT, flags=("--no-channels-last",)),
        "optimizer not fused": replace(DEFAULT, fused=False),
        "the C library's own way with freed memory": replace(DEFAULT, kept_memory=False),
    }
    if len(os.sched_getaffinity(0)) > 1:
        settings["one thread"] = replace(DEFAULT, threads=1)
    if gpus(os.environ):  # on CPUs compiling takes minutes, and has lost
        settings[_COMPILED] = replace(DEFAULT, compiled=True)
    return settings


def _milliseconds(steps: Steps) -> float:
    return steps.seconds(_BLOCK) / _BLOCK * 1000


def breakdown(label: str, flags: Sequence[str], repetitions: int) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Return where a step's time goes: rows of its parts, and a sentence on the heaviest operators.

    `rest` is what the trainer's own run takes beyond the parts: its loop, records and checks for signals.

    Raises:
        RingmasterError: a process failed.
    """
    spent: dict[str, list[float]] = {part: [] for part in (*PARTS, "rest")}
    with Steps(Setting(flags=tuple(flags))) as steps:
        count = steps.batches()
        for number in range(repetitions):
            parts = steps.parts(min(count, _PARTS_BLOCK))
            # The second epoch: the first warms up, as the parts have been.
            whole = trainings.train((*flags, "--epochs", "2", "--max-val-items", "64")).seconds[1] / count
            for part, seconds in {**parts, "rest": whole - sum(parts.values())}.items():
                spent[part].append(seconds * 1000)
            print(
                f"  round {number + 1}/{repetitions}: {label}: {whole * 1000:.2f} ms a step in the trainer", flush=True
            )
        operators = steps.operators(_PARTS_BLOCK // 2)
    rows = tuple(Row(label=f"{label}: {part}", unit="ms/step", values=tuple(each)) for part, each in spent.items())
    total = sum(statistics.median(each) for each in spent.values())
    heaviest = ", ".join(f"`{name}` {share:.0%} ({calls:g} calls)" for name, share, calls in operators)
    return rows, (f"{label}: {total:.2f} ms a step; operators by their own time: {heaviest}.",)
