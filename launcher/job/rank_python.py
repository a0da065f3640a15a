"""The Python that ranks run with: which one RANK_PYTHON names, and what a job needs of any that isn't ours."""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from launcher.base import caller
from launcher.base.errors import RingmasterError

OLDEST_TORCH = (2, 0)
"""Of any job's: torchrun's options are written with dashes since."""
_OLDEST_PYTHON = (3, 9)
"""Of any job's: `on_node/rank.py` runs with it."""
_TRAINERS_PYTHON, _TRAINERS_TORCH = (3, 11), (2, 10)
"""What the bundled trainer is tested with."""


def locate(text: str) -> Path:
    """Return the Python that RANK_PYTHON names: by its path, by its environment's folder, or as found on PATH.

    Links are kept as they are: a virtual environment's Python is one, and is that environment's by its path alone.

    Raises:
        RingmasterError: there is none, or it can't be executed.
    """
    path = caller.absolute(text)
    if "/" not in text and not path.exists():
        found = shutil.which(text)
        if not found:
            raise RingmasterError(
                f"RANK_PYTHON={text}: no such file or folder{caller.looked_in(text)}, and no such program on PATH"
            )
        path = Path(found).absolute()
    if path.is_dir():
        folder, path = path, path / "bin" / "python"
        if not path.is_file():
            below = folder / ".venv"
            way = f"; did you mean {below}?" if (below / "bin" / "python").is_file() else ""
            raise RingmasterError(f"RANK_PYTHON={text}: is no environment's folder: there is no bin/python in it{way}")
    if not path.is_file():
        what = "a link to nothing: make that environment anew" if path.is_symlink() else "no such file or folder"
        raise RingmasterError(f"RANK_PYTHON={text}: {what}{caller.looked_in(text)}")
    if not os.access(path, os.X_OK):
        raise RingmasterError(f"RANK_PYTHON={text}: can't be executed: give a Python, or its environment's folder")
    return path


def lacks(packages: Mapping[str, str], *, bundled: bool) -> Iterator[str]:
    """Yield each reason why a Python with these packages can't run a job's ranks.

    Args:
        packages: versions by name, `python` among them; an empty one is unknown.
        bundled: whether the job is the bundled trainer's.
    """
    if older(packages["python"], _OLDEST_PYTHON):
        yield f"is Python {packages['python']}; {_shown(_OLDEST_PYTHON)} or newer is needed"
    elif "torch" not in packages:
        yield "has no torch: install it there"
    elif older(packages["torch"], OLDEST_TORCH):
        yield f"has torch {packages['torch']}; its torchrun is too old: {_shown(OLDEST_TORCH)} or newer is needed"
    elif bundled:
        yield from lacks_for_the_trainer(packages)


def lacks_for_the_trainer(packages: Mapping[str, str]) -> Iterator[str]:
    """Yield what the bundled trainer misses in a Python with these packages, which has torch; see `lacks`."""
    for name, key, oldest in (("Python", "python", _TRAINERS_PYTHON), ("torch", "torch", _TRAINERS_TORCH)):
        version = packages.get(key, "")
        if older(version, oldest):
            needs = f"the bundled trainer needs {_shown(oldest)} or newer"
            yield f"has {name} {version}; {needs} (your own SCRIPT= doesn't)"
    for name in ("torchvision", "numpy"):
        if name not in packages:
            yield f"lacks {name}, which the bundled trainer needs (your own SCRIPT= may do without)"


def older(version: str, oldest: tuple[int, int]) -> bool:
    """Return whether a version, such as `2.9.1+cu128`, is older than `oldest`; an empty one is not."""
    parts = [*version.partition("+")[0].split("."), ""][:2]
    number = tuple(int("".join(filter(str.isdecimal, part)) or 0) for part in parts)
    return bool(version) and number < oldest


def _shown(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
