"""What a figure was measured on: without it no figure means anything."""

import os
import platform
import subprocess
import time
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks import sources
from launcher.base.paths import ROOT
from launcher.local.machine import cores
from launcher.on_node import probe

_GIB = 1 << 30
_CHANGES = "+changes"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine, the versions and the commit of a measurement."""

    cpu: str
    cores: int
    """The cores that this process may use."""
    memory_gib: int
    gpus: tuple[str, ...]
    system: str
    python: str
    torch: str
    torchvision: str
    commit: str
    """Short; with "+changes" where the working tree differed from it at the start or the end.

    docs/ and README.md don't count."""
    date: str
    """YYYY-MM-DD, UTC."""
    code: str = ""
    """`sources.fingerprint` of what was measured; empty in results from before fingerprints were stored."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values for json.dumps."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Machine":
        """Return the inverse of `to_json`. Raises KeyError or TypeError for other things."""
        return cls(**{**value, "gpus": tuple(value["gpus"])})

    @property
    def line(self) -> str:
        """Return all of it in one line for people."""
        gpus = ", ".join(self.gpus) or "no GPU"
        processors = f"{self.cores} core{'s' * (self.cores != 1)}"
        return (
            f"{self.cpu}, {processors}, {self.memory_gib} GiB, {gpus}; {self.system}, Python {self.python}, "
            f"torch {self.torch}, torchvision {self.torchvision}; commit {self.commit}, {self.date}"
        )


def look() -> Machine:
    """Return this machine, now. What can't be found out is "unknown"; never raises."""
    return Machine(
        cpu=_cpu(),
        cores=cores(),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB),
        gpus=_gpus(),
        system=_system(),
        python=platform.python_version(),
        torch=_version("torch"),
        torchvision=_version("torchvision"),
        commit=commit(ROOT),
        date=time.strftime("%Y-%m-%d", time.gmtime()),
    )


def at_end(before: Machine, name: str) -> Machine:
    """Return the machine of the measurement `name` that began at `before`.

    Its commit is marked if the tree was changed meanwhile, and it has the fingerprint of the code that was measured.
    """
    return replace(before, commit=between(before.commit, commit(ROOT)), code=sources.fingerprint(name))


def between(start: str, end: str) -> str:
    """Return the commit of a measurement between these two: the first, with "+changes" unless both are equal."""
    return start if start == end or start.endswith(_CHANGES) else start + _CHANGES


def _cpu() -> str:
    lines = _lines(Path("/proc/cpuinfo"))
    names = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model")))
    return next((name for name in names if name), platform.machine() or "unknown")


def _system() -> str:
    values = dict(line.split("=", 1) for line in _lines(Path("/etc/os-release")) if "=" in line)
    return values.get("PRETTY_NAME", platform.system() or "unknown").strip('"')


def _gpus() -> tuple[str, ...]:
    """Return the names that the driver reports: the benchmark's own process doesn't need torch."""
    try:
        return tuple(gpu["model"] for gpu in probe.ask_gpus()())
    except (RuntimeError, ValueError):
        return ()


def commit(folder: Path) -> str:
    """Return the working tree's commit, as in `Machine.commit`."""
    head = _output("git", "-C", str(folder), "rev-parse", "--short", "HEAD")
    if head is None:
        return "unknown"
    # Pages and charts of an earlier measurement don't change what is measured.
    changes = _output("git", "-C", str(folder), "status", "--porcelain", "--", ".", ":!docs", ":!README.md")
    return head.strip() + (_CHANGES if changes else "")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
