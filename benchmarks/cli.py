"""`make bench`: chooses the measurements, prints what they found, and writes it down."""

import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from benchmarks import machine
from benchmarks.publish import pages, tables
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
ON_DEMAND = {"provision": "benchmarks.provision", "delivery": "benchmarks.delivery"}
"""Modules with `measure(quick: bool) -> Result`, which start many container nodes: only when asked for."""
ON_A_CLUSTER = {"launch": "benchmarks.launch"}
"""Modules with `measure(quick: bool, inventory: str) -> Result`, which need a cluster: only when asked for."""
PRINTED = {"lines": "benchmarks.lines", "playbook": "benchmarks.playbook"}
"""Modules with `run(repetitions: int)`, which prints; only when asked for. The last starts container nodes (and, as
root, installs a Docker engine)."""
PAGES = "pages"
"""Measures nothing: redraws the pages and the README's results from what is stored."""
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
"""Of the measurements in `PRINTED`."""
DOCS = ROOT / "docs"
QUICK_DOCS = ROOT / "runs" / "bench-quick"
"""Where a quick run's page goes: with so few repetitions it doesn't replace the figures in docs/."""


def run(*, only: str = "", quick: bool = False, inventory: str = "") -> int:
    """Run the measurements that `only` names (commas between), or all that need no cluster; `quick` repeats them less.

    `only` = `pages` alone redraws docs/ and the README's results from what is stored, without measuring.

    If one fails, it is named, and the others go on. Each is written down as soon as it is done.

    Args:
        inventory: the cluster that launching is measured on; empty: the user's lab.

    Returns:
        The exit code: 0, 1 if a measurement failed, 130 if the user stopped them.

    Raises:
        RingmasterError: `only` has an unknown name, or the README's results can't be redrawn.
        StoppedError: we were told to end.
    """
    if only.strip() == PAGES:
        print(f"redrawn: {', '.join(_redrawn()) or 'nothing is stored'}: {_shown(DOCS / pages.PAGE)}")
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
        print(f"failed: {', '.join(failed)}; their errors are above", file=sys.stderr)
    if missed:
        print("\n".join(("promises missed:", *missed)))
    kept = [name for name in done if name not in PRINTED]
    if kept:
        if not quick:
            _redrawn()  # the other figures too: their code may have changed meanwhile
        print(f"written down: {', '.join(kept)}: {_shown(place / pages.PAGE)}")
    return code


def _redrawn() -> list[str]:
    """Redraw the pages and the README's results; return the names of the stored results."""
    names = pages.redraw(DOCS)
    pages.redraw_readme(DOCS, DOCS.parent / "README.md")
    return names


def chosen(only: str) -> list[str]:
    """Return the names in `only`, or those that `make bench` alone measures.

    Raises:
        RingmasterError: there is no measurement of such a name.
    """
    known = (*DEFAULT, *ON_DEMAND, *ON_A_CLUSTER, *PRINTED)
    names = [name.strip() for name in only.split(",")] if only else list(DEFAULT)
    for name in names:
        if name not in known:
            raise RingmasterError(
                f"ONLY={only}: there is no measurement '{name}'; there are: {', '.join(known)}; and alone: {PAGES}"
            )
    return names


def estimate(names: Sequence[str], *, quick: bool) -> str:
    """Return about how long the measurements take, in words."""
    seconds = sum(ESTIMATES[name][quick] for name in names if name in ESTIMATES)
    other = ", ".join(name for name in names if name in {**ON_DEMAND, **ON_A_CLUSTER, **PRINTED})
    about = f"about {seconds} s" if seconds < 100 else f"about {seconds / 60:.0f} minutes"
    parts = (f"{about} on two cores" if seconds else "", f"{other}: not estimated" if other else "")
    return "; ".join(filter(None, parts))


def _measured(name: str, here: machine.Machine, place: Path, *, quick: bool, inventory: str) -> Result | bool | None:
    """Return its findings, printed and written down; True if it has none to write down, None if it failed."""
    try:
        if name in PRINTED:
            import_module(PRINTED[name]).run(QUICK_REPETITIONS if quick else REPETITIONS)
            return True
        result: Result
        if name in ON_A_CLUSTER:
            result = import_module(ON_A_CLUSTER[name]).measure(quick, inventory)
        else:
            result = import_module({**DEFAULT, **ON_DEMAND}[name]).measure(quick)
        if quick:
            result = replace(result, command=f"{result.command} QUICK=1")
        print(f"\n{tables.terminal(result)}")
        if not pages.publish(result, machine.at_end(here, name), place):
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


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
