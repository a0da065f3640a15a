"""What a new job continues from: the newest whole checkpoint of an earlier one, here or on a node."""

import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

from launcher.base.errors import ExitCode, RingmasterError
from launcher.job.folder import Earlier, JobFolder
from launcher.on_node import checkpoints
from launcher.on_node.checkpoints import Found
from launcher.on_node.tree_store import Entry, manifest_of, parse


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Files of an earlier job, and where they are."""

    job: str
    node: str = ""
    """The node that has them, by its name in our inventory; empty: they are here."""
    folder: str
    """The folder of checkpoints there."""
    entries: tuple[Entry, ...]
    step: int | None
    """The optimizer step; None: of a script of the user's, whose files only it can read."""
    changed: float
    """When the newest of them was written, unix seconds."""
    notes: tuple[str, ...] = ()
    """What the user is told about the choice."""

    def __str__(self) -> str:
        what = "its checkpoints" if self.step is None else f"step {self.step}"
        return f"{what} on {self.node}" if self.node else f"{what} in the copy here"


def verb_for(job: Earlier) -> str:
    """Return what is to be looked for: of the bundled trainer's checkpoints one, of a script's files all."""
    return "newest" if job.bundled else "all"


def checkpoint_of(job: Earlier, found: Found, *, node: str = "") -> Checkpoint | None:
    """Return what was found as a checkpoint; None if there is nothing that can be used.

    Raises:
        ValueError, TypeError: a node's answer has names that lead out of the folder, or is none.
    """
    if not found.files:
        return None
    entries = parse(manifest_of(Entry(*row) for row in found.files))
    return Checkpoint(
        job=job.folder.name, node=node, folder=found.folder, entries=entries, step=found.step, changed=found.changed
    )


def choose(there: Checkpoint | None, here: Checkpoint | None) -> Checkpoint | None:
    """Return the newer one; where both are the same, the node's, which needn't travel."""
    if there is None or here is None:
        return there or here
    if there.step is not None and here.step is not None:
        return here if here.step > there.step else there
    return here if int(here.changed) > int(there.changed) else there  # what is downloaded has whole seconds


def found_here(job: Earlier) -> tuple[Checkpoint | None, list[str]]:
    """Look at the copy here; return its checkpoint, if any, and what was passed over.

    Raises:
        RingmasterError: it can't be read.
    """
    folder = job.folder.checkpoints
    try:
        found = checkpoints.VERBS[verb_for(job)](str(folder))
    except OSError as error:
        raise RingmasterError(
            f"{job.given}: {error.filename or folder}: can't be read ({error.strerror})", exit_code=ExitCode.CLUSTER
        ) from error
    return checkpoint_of(job, found), [f"{each}, in the copy here" for each in found.problems]


def newest_here(job: Earlier) -> Checkpoint:
    """Return what the copy here has to continue from.

    Raises:
        RingmasterError: nothing that is whole (4).
    """
    found, problems = found_here(job)
    return told(job, found, problems)


def told(job: Earlier, chosen: Checkpoint | None, problems: list[str]) -> Checkpoint:
    """Return the choice, with the words that the user is to read.

    Raises:
        RingmasterError: there is none (4).
    """
    if chosen is None:
        why = f" ({'; '.join(problems)})" if problems else ""
        raise RingmasterError(
            f"{job.given}: no valid checkpoint{why}; start a new job without RESUME", exit_code=ExitCode.CLUSTER
        )
    return replace(chosen, notes=(*problems, f"continues from job {chosen.job}: {chosen}"))


def cant_be_asked(job: Earlier, why: str) -> RingmasterError:
    """Return the error for a job whose first node can't be asked, with a way to insist on the copy here."""
    name, found = job.folder.name, found_here(job)[0]
    copy = f"RESUME=runs/{name} continues from the copy here, which may be older ({_age(found)})" if found else ""
    return RingmasterError(
        f"{job.given}: {job.head} has its checkpoints and can't be asked ({why}): bring it back"
        + (f", or {copy}" if copy else "; no checkpoint of it is here"),
        exit_code=ExitCode.NOT_STARTED,
    )


def _age(found: Checkpoint) -> str:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.changed))
    return f"of {when}" if found.step is None else f"step {found.step}, of {when}"


def inherit(checkpoint: Checkpoint, target: JobFolder, *, linked: bool) -> None:
    """Give a new job's folder the files of a checkpoint that is here.

    Args:
        linked: make hard links where the disk can, which cost nothing. Only for programs that replace files by
            renaming, as the bundled trainer does: a script that writes into a link would change the earlier job's file.
    """
    for entry in checkpoint.entries:
        source, path = Path(checkpoint.folder) / entry.path, target.checkpoints / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry.link:
            path.symlink_to(entry.link)
        elif not entry.sha256:
            path.mkdir(exist_ok=True)
        elif not (linked and _link(source, path)):
            shutil.copy2(source, path)


def _link(source: Path, path: Path) -> bool:
    try:
        os.link(source, path)
    except OSError:
        return False
    return True
