"""The Python that the ranks of this machine's nodes run with: the launcher's own (`.venv`), or the user's."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from launcher.base.errors import ExitCode, RingmasterError
from launcher.job.rank_python import lacks, older

_SHOWN = ("torch", "torchvision")
_ASK_S = 60.0
"""For a Python on a disk that has not read it yet."""
_ASK = """
import json, sys
found = {"python": "%d.%d.%d" % sys.version_info[:3], "prefix": sys.prefix, "executable": sys.executable}
found["packages"], found["waits"] = {}, "ringmaster_exit" in sys.modules
try:
    from importlib import metadata, util
    for name in ("torch", "torchvision", "numpy"):
        if util.find_spec(name) is not None:
            try:
                found["packages"][name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                found["packages"][name] = ""
except ImportError:
    pass
print(json.dumps(found))
"""
"""Runs with any Python from 2.7 on, and imports nothing of what it finds: torch alone would take seconds."""
# `-m` looks for modules in the code root first, where a script's neighbour may be called `queue`; 3.11 brought -P.
_TORCHRUN_BEFORE_3_11 = (
    "-c",
    "import sys; del sys.path[0]; from torch.distributed.run import main; sys.exit(main())",
)


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """A Python as ranks are run with it."""

    program: Path
    agent: tuple[str, ...]
    """How torchrun is started with it."""
    environment: Mapping[str, str]
    """What activating its environment in a shell would set."""
    packages: Mapping[str, str]
    """Versions by name, `python` among them; empty where unknown."""
    waits: bool = True
    """Whether it has `ringmaster_exit` (docs/decisions/0034)."""

    @property
    def versions(self) -> str:
        """Its version and those of torch and torchvision, for people."""
        named = [f"{name} {self.packages.get(name, 'not installed') or 'of unknown version'}" for name in _SHOWN]
        return ", ".join([f"Python {self.packages['python']}", *named])


def our_python(inherited: Mapping[str, str]) -> Interpreter:
    """Return the launcher's own Python.

    Args:
        inherited: the variables that ranks inherit.
    """
    program = Path(sys.executable)
    versions = {name: _version(name) for name in _SHOWN}
    return Interpreter(
        program=program,
        agent=(str(program.with_name("torchrun")),),
        environment=activation(program.parent, Path(sys.prefix), inherited),
        packages={
            "python": ".".join(str(part) for part in sys.version_info[:3]),
            **{name: version for name, version in versions.items() if version},
        },
    )


def users_python(program: Path, inherited: Mapping[str, str], *, bundled: bool) -> Interpreter:
    """Return the user's own Python, once it has said what it has; nothing is written into its environment.

    Its torchrun is started as a module: the script of that name may be absent, or begin with the path of a Python that
    has moved.

    Args:
        inherited: the variables that ranks inherit.
        bundled: whether the job is the bundled trainer's.

    Raises:
        RingmasterError: it is no Python, or can't run the job.
    """
    found = _asked(program, inherited)
    packages = {"python": str(found["python"]), **found["packages"]}
    for what in lacks(packages, bundled=bundled):
        raise _refused(program, what)
    torchrun = _TORCHRUN_BEFORE_3_11 if older(packages["python"], (3, 11)) else ("-P", "-m", "torch.distributed.run")
    folder = Path(found["executable"] or program).parent
    return Interpreter(
        program=program,
        agent=(str(program), *torchrun),
        environment=activation(folder, Path(found["prefix"]), inherited),
        packages=packages,
        waits=found["waits"] is True,
    )


def activation(folder: Path, prefix: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make programs of an environment the ones that are found: its folder first on PATH.

    Args:
        folder: where its Python is.
        prefix: its top folder.
        inherited: the variables without it.
    """
    others = [each for each in inherited.get("PATH", os.defpath).split(os.pathsep) if each != str(folder)]
    variables = {"PATH": os.pathsep.join([str(folder), *others])}
    if (prefix / "pyvenv.cfg").is_file():
        variables["VIRTUAL_ENV"] = str(prefix)
    if (prefix / "conda-meta").is_dir():
        variables["CONDA_PREFIX"] = str(prefix)
    return variables


def _asked(program: Path, inherited: Mapping[str, str]) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [program, "-c", _ASK],
            env=dict(inherited),
            cwd="/",  # where no module of the user's is found by accident
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ASK_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _refused(program, f"does not say within {_ASK_S:.0f} s what it has") from error
    except OSError as error:
        raise _refused(program, f"can't be started: {error.strerror}") from error
    said = done.stdout.decode(errors="replace").strip()
    try:
        found = json.loads(said.rpartition("\n")[2])  # what it loads when it starts may print something first
        if done.returncode == 0 and isinstance(found, dict) and found.keys() >= {"python", "prefix", "packages"}:
            return found
    except ValueError:
        pass
    lines = [*said.splitlines(), *done.stderr.decode(errors="replace").strip().splitlines()]
    last = lines[-1][:200] if lines else "it said nothing"
    raise _refused(program, f"is no Python that works: it ended with {done.returncode} ({last})")


def _refused(program: Path, what: str) -> RingmasterError:
    return RingmasterError(f"RANK_PYTHON: {program} {what}", exit_code=ExitCode.NOT_STARTED)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
