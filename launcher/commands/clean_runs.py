"""`make clean-runs`: remove the folders of old jobs from `runs/`, once the user has agreed."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.terminal import visible
from launcher.base.values import amount, switch
from launcher.job.folder import RUNS
from launcher.job.old_runs import Run, find_runs, freed_bytes, removable, remove, remove_leftovers

_KEEP = 20
_SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class Options:
    """The variables as the user typed them; an empty one is its default."""

    keep: str = ""
    yes: str = ""


def run(options: Options) -> int:
    """Show what would go, ask, remove it, and return the exit code.

    Raises:
        RingmasterError: a value can't be right, nobody can be asked, or the disk refuses.
    """
    if not re.fullmatch(r"[0-9]{0,6}", options.keep):
        raise RingmasterError(f"KEEP={options.keep}: must be a whole number: how many of the newest jobs stay")
    keep = int(options.keep) if options.keep else _KEEP
    yes = switch("YES", options.yes)
    runs = find_runs(RUNS)
    going = removable(runs, keep)
    spared = len(runs[keep:]) - len(going)
    why = f"; {spared} more may still run, or latest means it" if spared else ""
    if not going:
        print(f"nothing to remove: runs/ has {len(runs)} job(s), the newest {keep} stay{why}")
        return ExitCode.SUCCEEDED
    size = amount(freed_bytes(going))
    print(f"of {len(runs)} jobs in runs/, the newest {keep} stay, and {len(going)} would go ({size}){why}:")
    print("\n".join(f"  {visible(name)}" for name in _named(going)), flush=True)
    if not yes and not _agreed(len(going)):
        print("nothing was removed")
        return ExitCode.SUCCEEDED
    try:
        remove_leftovers(RUNS)
        gone = [each for each in going if remove(each)]
    except OSError as error:
        raise RingmasterError(
            f"{error.filename}: can't be removed ({error.strerror}); remove it yourself, then try again",
            exit_code=ExitCode.FAILED,
        ) from error
    print(f"{len(gone)} job(s) removed")
    return ExitCode.SUCCEEDED


def _named(going: Sequence[Run]) -> list[str]:
    """Return the names to show, the newest first; of many only some."""
    names = [each.folder.name for each in going]
    if len(names) <= _SHOWN:
        return names
    return [*names[: _SHOWN - 1], f"… and {len(names) - _SHOWN + 1} older ones, to {names[-1]}"]


def _agreed(count: int) -> bool:
    """Ask; what is removed can't be had back, so nothing else than a yes counts.

    Raises:
        RingmasterError: nobody can be asked.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        raise RingmasterError("there is no terminal to ask on, and nothing was removed: YES=1 removes them unasked")
    try:
        return input(f"Remove the {count} job(s), with their checkpoints? [y/N] ").strip().lower() in {"y", "yes"}
    except EOFError:
        print()
        return False
