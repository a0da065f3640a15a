"""`make bench`: chooses the measurements, prints what they found, and writes it down."""

import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from benchmarks import machine, pages, tables
from benchmarks.result import Result
from launcher.base.errors import ExitCode, RingmasterError, StoppedError
from launcher.base.paths import ROOT
from trainer.errors import UserError

DEFAULT = {
    "input": "benchmarks.input",
    "step": "benchmarks.step",
    "stream": "benchmarks.stream",
    "recipe": "benchmarks.recipe",
    "scaling": "benchmarks.scaling",
    "report": "benchmarks.report",
    "gpu": "benchmarks.gpu",
    "first-step": "benchmarks.first_step",
}
"""By name, the modules with `measure(quick: bool) -> Result`; `make bench` alone runs them all, in this order."""
ASKED = {
    "provision": "benchmarks.provision",
    "launch": "benchmarks.launch",
    "image-delivery": "benchmarks.image_delivery",
}
"""Modules with `run(...)`, which prints. They start container nodes (and, as root, install a Docker engine), or need a
cluster: only when asked for."""
PAGES = "pages"
"""Measures nothing: writes the pages again from what is stored."""
ESTIMATES = {
    "input": (48, 18),
    "step": (185, 50),
    "stream": (85, 32),
    "recipe": (470, 43),
    "scaling": (270, 43),
    "report": (220, 48),
    "gpu": (5, 5),
    "first-step": (70, 30),
}
"""Seconds on two cores without GPU, and with QUICK=1."""
REPETITIONS, QUICK_REPETITIONS = 7, 3
"""Of the measurements that are only run when asked for."""
DOCS = ROOT / "docs"
QUICK_DOCS = ROOT / "runs" / "bench-quick"
"""Where a quick run's page goes: with so few repetitions it doesn't replace the figures in docs/."""


def run(*, only: str = "", quick: bool = False, inventory: str = "") -> int:
    """Run the measurements that `only` names (commas between), or all that need no cluster; `quick` repeats them less.

    `only` = `pages` alone writes docs/ again from the stored results, without measuring.

    One that fails is named, and the others go on. Each is written down as soon as it is done.

    Args:
        inventory: the cluster that launching is measured on; empty: the user's lab.

    Returns:
        The exit code: 0, 1 where a measurement failed, 130 where the user stopped them.

    Raises:
        RingmasterError: `only` names one that is not there.
        StoppedError: we were told to end.
    """
    if only.strip() == PAGES:
        print(f"written again: {', '.join(pages.redraw(DOCS)) or 'nothing is stored'}: {_shown(DOCS / pages.PAGE)}")
        return ExitCode.SUCCEEDED
    names = chosen(only)
    place = QUICK_DOCS if quick else DOCS
    here = machine.look()
    print(f"{here.line}\n{estimate(names, quick=quick)}\n")
    failed: list[str] = []
    done: list[str] = []
    missed: list[str] = []
    code = ExitCode.SUCCEEDED
    try:
        for number, name in enumerate(names, start=1):
            print(f"[{number}/{len(names)}] {name}", flush=True)
            begun = time.monotonic()
            result = _measured(name, here, place, quick=quick, inventory=inventory)
            (failed if result is None else done).append(name)
            if isinstance(result, Result):
                missed += [f"  {name}: {tables.ratio_line(ratio)}" for ratio in result.missed]
            print(f"  {time.monotonic() - begun:.0f} s\n", flush=True)
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    if failed:
        code = code or ExitCode.FAILED
        print(f"failed: {', '.join(failed)}; what each said stands above", file=sys.stderr)
    if missed:
        print("\n".join(("promises missed:", *missed)))
    kept = [name for name in done if name in DEFAULT]
    if kept:
        print(f"written down: {', '.join(kept)}: {_shown(place / pages.PAGE)}")
    return code


def chosen(only: str) -> list[str]:
    """The names in `only`, or those that `make bench` alone measures. Raises RingmasterError for unknown ones."""
    known = (*DEFAULT, *ASKED)
    names = [name.strip() for name in only.split(",")] if only else list(DEFAULT)
    for name in names:
        if name not in known:
            raise RingmasterError(
                f"ONLY={only}: there is no measurement '{name}'; there are: {', '.join(known)}; and alone: {PAGES}"
            )
    return names


def estimate(names: Sequence[str], *, quick: bool) -> str:
    """About how long the measurements take, in words."""
    seconds = sum(ESTIMATES[name][quick] for name in names if name in ESTIMATES)
    other = ", ".join(name for name in names if name in ASKED)
    about = f"about {seconds} s" if seconds < 100 else f"about {seconds / 60:.0f} minutes"
    parts = (f"{about} on two cores" if seconds else "", f"{other}: not estimated" if other else "")
    return "; ".join(filter(None, parts))


def _measured(name: str, here: machine.Machine, place: Path, *, quick: bool, inventory: str) -> Result | bool | None:
    """Its findings, printed and written down; True for one that has none to write down, None for one that failed."""
    try:
        if name in ASKED:
            repetitions = QUICK_REPETITIONS if quick else REPETITIONS
            import_module(ASKED[name]).run(*_arguments(name, repetitions, inventory))
            return True
        result: Result = import_module(DEFAULT[name]).measure(quick)
        if quick:
            result = replace(result, command=f"{result.command} QUICK=1")
        print(f"\n{tables.terminal(result)}")
        if not pages.publish(result, machine.at_end(here), place):
            print("  nothing was measured: the figures written down earlier stay")
        return result
    except StoppedError:
        raise
    except (RingmasterError, UserError) as error:
        print(f"ringmaster: {name}: {error}", file=sys.stderr)
        return None
    except Exception:  # a fault of one measurement is no reason to lose the others
        traceback.print_exc()
        print(f"ringmaster: {name} failed, see above", file=sys.stderr)
        return None


def _arguments(name: str, repetitions: int, inventory: str) -> Sequence[int | str]:
    return (repetitions, inventory) if name == "launch" else (repetitions,)


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
