"""A job's folder `runs/<name>/`: its name, its plan, what it continues from, its summary."""

import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from launcher.base.atomic_file import write_json
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT
from launcher.job.plan import NAME, Plan

RUNS = ROOT / "runs"

_LATEST = "latest"
_SPOILT = "*.bad"  # what the trainer calls a checkpoint that it found damaged


OURS = frozenset({"plan.json", "summary.json", "report.html", "logs", "nodes"})
"""Names in a job's folder that are the launcher's: nothing that the job itself writes gets one of them."""


class NameTakenError(RingmasterError):
    """Another launcher has made the folder between choice and creation."""


@dataclass(frozen=True, kw_only=True)
class JobFolder:
    """Where the files of one job are, on the machine that started it."""

    path: Path

    @property
    def name(self) -> str:
        """The job's name."""
        return self.path.name

    @property
    def plan(self) -> Path:
        """What was launched."""
        return self.path / "plan.json"

    @property
    def metrics(self) -> Path:
        """What the script reports, one JSON object a line."""
        return self.path / "metrics.jsonl"

    @property
    def logs(self) -> Path:
        """The folder of the logs, one for each node."""
        return self.path / "logs"

    @property
    def checkpoints(self) -> Path:
        """The folder of the job's checkpoints."""
        return self.path / "checkpoints"

    @property
    def report(self) -> Path:
        """The page about the job, for people."""
        return self.path / "report.html"

    @property
    def summary(self) -> Path:
        """How the job ended."""
        return self.path / "summary.json"


def choose(runs: Path, name: str) -> JobFolder:
    """Return the folder that a job called `name` would get; without a name it is called by the time. Create nothing.

    Raises:
        RingmasterError: the name can't be a folder's name, or another job has it.
    """
    if not name:
        stem = time.strftime("%Y-%m-%d_%H-%M-%S")
        names = [stem, *(f"{stem}_{number}" for number in range(2, 100))]
        return JobFolder(path=next(runs / each for each in names if not (runs / each).exists()))
    if not NAME.fullmatch(name) or name == _LATEST:
        raise RingmasterError(
            f"NAME={name!r}: give up to 100 letters, digits and . _ + -, a letter or digit first, and not '{_LATEST}'"
        )
    if (runs / name).exists():
        raise RingmasterError(f"NAME={name}: there is a job of this name already, runs/{name}; choose another name")
    return JobFolder(path=runs / name)


def create(folder: JobFolder, plan: Plan, *, inherits: JobFolder | None = None) -> None:
    """Make the folder, with the plan and an earlier job's checkpoints, then let `runs/latest` name it.

    Raises:
        NameTakenError: another launcher took the name first.
        RingmasterError: the disk refuses; nothing is left of the folder.
    """
    try:
        folder.path.parent.mkdir(exist_ok=True)
        try:
            folder.path.mkdir(mode=0o700)
        except FileExistsError as error:
            raise NameTakenError(f"{folder.path}: another job took this name just now; choose another NAME") from error
        try:
            _fill(folder, plan, inherits)
        except BaseException:
            shutil.rmtree(folder.path, ignore_errors=True)
            raise
    except FileExistsError as error:
        raise RingmasterError(f"{folder.path.parent} is a file, but jobs go into a folder there; move it") from error
    except (OSError, shutil.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RingmasterError(
            f"{folder.path}: can't be written ({reason}); free space or fix its mode",
            exit_code=ExitCode.NOT_STARTED,
        ) from error


def discard(folder: JobFolder) -> None:
    """Remove the folder of a job that never started; let `runs/latest` name the newest of the others, if any."""
    shutil.rmtree(folder.path, ignore_errors=True)
    link = folder.path.parent / _LATEST
    if link.is_symlink() and not link.exists():
        others = [path for path in folder.path.parent.iterdir() if path.is_dir() and not path.is_symlink()]
        link.unlink()
        if others:
            _point_latest(JobFolder(path=max(others, key=lambda path: path.stat().st_mtime)))


def _fill(folder: JobFolder, plan: Plan, inherits: JobFolder | None) -> None:
    folder.logs.mkdir()
    folder.checkpoints.mkdir()
    if inherits:
        inherit_checkpoints(inherits, folder, linked=plan.script is None)
    write_json(folder.plan, plan.as_json())
    _point_latest(folder)


def _point_latest(folder: JobFolder) -> None:
    link = folder.path.parent / _LATEST
    if link.exists() and not link.is_symlink():
        return  # the user's own file or folder of that name stays
    new = folder.path.parent / f".{_LATEST}-{os.getpid()}"
    new.unlink(missing_ok=True)  # left by a launcher that was killed just here and had our process id
    new.symlink_to(folder.name)
    new.replace(link)


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """A job that another continues from."""

    folder: JobFolder
    script: str | None
    arguments: tuple[str, ...]
    data: str | None
    launch_style: str
    """The flag that gave its ranks their local rank, else empty."""
    ranks: int | None = None
    """Its `RANKS`."""


def earlier(runs: Path, name: str) -> Earlier:
    """Read the job that `RESUME` names.

    Raises:
        RingmasterError: there is no such job (2), or it has no checkpoint (4).
    """
    folder = JobFolder(path=(runs / name).resolve())  # RESUME=latest is the job the link names
    if not NAME.fullmatch(name) or not folder.path.is_dir():
        known = sorted(path.name for path in runs.glob("*") if path.is_dir() and not path.is_symlink())
        raise RingmasterError(
            f"RESUME={name}: no such job here; there are: {', '.join(known[-5:]) or 'none'} "
            f"(make logs NAME={name} fetches one from its nodes)"
        )
    try:
        plan = json.loads(folder.plan.read_text())
        script, arguments = plan["script"], tuple(plan["arguments"])
        data, launch_style, ranks = plan["data"], plan["launch_style"], plan.get("ranks")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RingmasterError(f"RESUME={name}: {folder.plan} can't be used ({error})") from error
    if not any(not path.match(_SPOILT) for path in folder.checkpoints.glob("*")):
        raise RingmasterError(
            f"RESUME={name}: {folder.checkpoints} has no valid checkpoint; start a new job without RESUME "
            f"(of a job on a cluster: make logs NAME={name} fetches them first)",
            exit_code=ExitCode.CLUSTER,
        )
    return Earlier(folder=folder, script=script, arguments=arguments, data=data, launch_style=launch_style, ranks=ranks)


def inherit_checkpoints(source: JobFolder, target: JobFolder, *, linked: bool) -> None:
    """Give the new job the earlier one's checkpoints.

    Args:
        linked: make hard links where the disk can, which cost nothing. Only for programs that replace files by
            renaming, as the bundled trainer does: a script that writes into a link would change the earlier job's file.
    """

    def link(from_: str, to: str) -> None:
        try:
            os.link(from_, to)
        except OSError:
            shutil.copy2(from_, to)

    shutil.copytree(
        source.checkpoints,
        target.checkpoints,
        copy_function=link if linked else shutil.copy2,
        dirs_exist_ok=True,
        symlinks=True,
        ignore=shutil.ignore_patterns(_SPOILT),
    )
