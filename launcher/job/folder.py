"""A job's folder `runs/<name>/`: its name, its plan, what it continues from, its summary."""

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launcher.base import caller
from launcher.base.atomic_file import write_json
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT
from launcher.job.plan import NAME, Plan

RUNS = ROOT / "runs"

_LATEST = "latest"

OURS = frozenset(
    {
        "plan.json", "job.toml", ".launcher", "summary.json", "report.html", "logs", "nodes", "run", "work",
        "replaced.json",
    }
)  # fmt: skip
"""Names in a job's folder that are the launcher's: nothing that the job writes into RUN_DIR gets one of them."""
OURS_OF_A_NODE = frozenset({"run", "work"})
"""The same in the folder of a node that is not the first."""


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
    def launcher(self) -> Path:
        """What the launcher holds that follows the job (`launcher.job.held`)."""
        return self.path / ".launcher"

    @property
    def job_file(self) -> Path:
        """What the user asked for, to start the same job again; absent where another machine started it."""
        return self.path / "job.toml"

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

    def of_node(self, node: str) -> Path:
        """Return the folder of what one node has, beside what the first one has."""
        return self.path / "nodes" / node

    def work_of(self, node: str, *, head: bool) -> Path:
        """Return the folder of what the program has written into its working folder on a node."""
        return (self.path if head else self.of_node(node)) / "work"

    @property
    def replaced(self) -> Path:
        """Which of the code's own files the program has replaced in its working folders."""
        return self.path / "replaced.json"

    @property
    def own(self) -> Path:
        """RUN_DIR of a script on this machine, while it runs."""
        return self.path / "run"

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


def create(folder: JobFolder, plan: Plan, *, fill: Callable[[JobFolder], None] | None = None) -> None:
    """Make the folder, with the plan and what `fill` puts into it, then let `runs/latest` name it.

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
            folder.logs.mkdir()
            folder.checkpoints.mkdir()
            if fill:
                fill(folder)
            write_json(folder.plan, plan.as_json())
            _point_latest(folder)
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

    given: str
    """How the user named it, for messages."""
    folder: JobFolder
    stored: Mapping[str, Any]
    """Its `plan.json`."""
    head: str = ""
    """The name of its first node, if its nodes are machines of their own: they have its checkpoints."""
    address: str = ""
    """That node's address, for the other nodes."""
    script: str | None
    module: str | None = None
    code_root: str | None = None
    arguments: tuple[str, ...]
    data: str | None
    launch_style: str
    """The option that gave its ranks their local rank, or `spawn`, else empty."""
    ranks: int | None = None
    """Its `RANKS`."""
    rank_python: str | None = None
    """Its `RANK_PYTHON`."""
    placeholders: bool = False
    """Its `PLACEHOLDERS`."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Its `ENV`."""

    @property
    def bundled(self) -> bool:
        """Whether the bundled trainer ran in it."""
        return self.script is None and self.module is None


def earlier(runs: Path, name: str) -> Earlier:
    """Read the job that `RESUME` names: by its name, or by the path of its folder, which means the copy there.

    Raises:
        RingmasterError: there is no such job.
    """
    by_path = "/" in name
    folder = JobFolder(path=(caller.path(name) if by_path else runs / name).resolve())  # `latest` is a link
    if by_path and not folder.plan.is_file():
        raise RingmasterError(
            f"RESUME={name}: no such folder of a job{caller.looked_in(name)}; give its path, such as "
            "runs/<name>, or its name"
        )
    if not (by_path or NAME.fullmatch(name)) or not folder.path.is_dir():
        known = sorted(path.name for path in runs.glob("*") if path.is_dir() and not path.is_symlink())
        raise RingmasterError(
            f"RESUME={name}: no such job here; there are: {', '.join(known[-5:]) or 'none'} "
            f"(make logs NAME={name} fetches one from its nodes)"
        )
    try:
        plan = json.loads(folder.plan.read_text())
        head = {} if by_path or plan["nodes"][0]["container"] is None else plan["nodes"][0]
        return Earlier(
            given=f"RESUME={name}",
            folder=folder,
            stored=plan,
            head=head.get("name", ""),
            address=head.get("address", ""),
            script=plan["script"],
            module=plan.get("module"),
            code_root=plan.get("code_root"),
            arguments=tuple(plan["arguments"]),
            data=plan["data"],
            launch_style=plan["launch_style"],
            ranks=plan.get("ranks"),
            rank_python=plan.get("rank_python"),
            placeholders=bool(plan.get("placeholders")),
            variables=dict(plan.get("variables", {})),
        )
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise RingmasterError(f"RESUME={name}: {folder.plan} can't be used ({error})") from error
