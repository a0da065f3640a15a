"""Whether the Python that runs the ranks has a module, or a package with a console script."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launcher.base.errors import ExitCode, RingmasterError
from launcher.job import module as modules
from launcher.job.code_root import importable

# Only the first name is asked for: Python would import a package to find what is in it.
_ASK = """
import importlib.metadata, importlib.util, json, sys
package, colon, script = sys.argv[1].partition(":")
if colon:
    try:
        points = importlib.metadata.distribution(package).entry_points
        scripts = [one.name for one in points if one.group == "console_scripts"]
    except importlib.metadata.PackageNotFoundError:
        scripts = None
    print(json.dumps({"scripts": scripts}))
else:
    spec = importlib.util.find_spec(package.partition(".")[0])
    folders = spec and spec.submodule_search_locations
    print(json.dumps({"found": spec is not None, "folders": None if folders is None else list(folders)}))
"""
_LIMIT_S = 60


def refuse_missing(name: str, root: Path, python: Path) -> None:
    """Refuse a module that is neither the user's own nor the interpreter's, before anything starts.

    Args:
        name: the module, or `package:script`.
        root: the code root.
        python: the interpreter that runs the ranks.

    Raises:
        RingmasterError: it isn't there.
    """
    own = [root / folder for folder in importable(root)]
    if ":" not in name and not modules.lacks(name, own):
        return
    try:
        # Not in the working folder, where Python would look as well.
        words = [str(python), "-c", _ASK, name]
        done = subprocess.run(words, cwd="/", capture_output=True, text=True, timeout=_LIMIT_S, check=True)
        answer = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return  # the ranks will say what is wrong with it
    why = _console(name, answer["scripts"]) if ":" in name else _module(name, answer, own)
    if why:
        places = [python] if ":" in name else [*own, python]
        looked = f"looked in {', '.join(map(str, places))}"
        raise RingmasterError(f"MODULE={name}: {why} ({looked})", exit_code=ExitCode.NOT_STARTED)


def _console(name: str, scripts: list[str] | None) -> str:
    package, _, script = name.partition(":")
    if scripts is None:
        return f"the package {package} is not installed there: install it, or correct the name"
    if script in scripts:
        return ""
    return f"{package} has no console script {script}; it has: {', '.join(sorted(scripts)) or 'none'}"


def _module(name: str, answer: dict[str, Any], own: Sequence[Path]) -> str:
    top, _, rest = name.partition(".")
    if not answer["found"]:
        if modules.find(top, own):  # a folder that makes no package
            return modules.lacks(name, own)
        return f"there is no {top}: name the folder that holds it with CODE=, or install its package there"
    if answer["folders"] is None:
        return f"{top} is no package" if rest else ""
    places = [Path(folder) for folder in answer["folders"]]
    if any(place.name != top for place in places):
        return ""  # an editable installation, whose folders have other names
    return modules.lacks(name, [place.parent for place in places])
