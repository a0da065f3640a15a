"""Finding the checkpoint to go on from, and going on from it."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from trainer.checkpoint.files import CheckpointFolder, Progress, read
from trainer.checkpoint.state import restore
from trainer.errors import UserError
from trainer.training.context import Job

Found = tuple[Path, bytes]


def find(wanted: str, folder: CheckpointFolder, *, restarted: bool, say: Callable[[str], None]) -> Found | None:
    """The checkpoint to resume from: `wanted` is auto, none, or the path of a checkpoint or a folder of them.

    After a restart by torchrun, what this very run has written goes before `none` and before a path. Raises UserError:
    2 for a path without a checkpoint, 4 where there are some but none is intact.
    """
    if wanted == "auto" or restarted:
        own = folder.newest(say=say, set_aside=True)
        if own or wanted == "auto":
            return own and (own[0], own[2])
    found = None if wanted == "none" else _from_path(Path(wanted), say)
    retired = 0 if restarted else folder.retire()
    if retired:
        say(f"{retired} checkpoint(s) of an earlier run in {folder.path} are kept as *.old")
    return found


def _from_path(path: Path, say: Callable[[str], None]) -> Found:
    if path.is_dir():
        for folder in (path, path / "checkpoints"):
            found = CheckpointFolder(folder).newest(say=say, set_aside=False)
            if found is not None:
                return found[0], found[2]
        raise UserError(f"argument --resume: there is no checkpoint in {path}", exit_code=2)
    try:
        return path, read(path.with_suffix(".json"))[1]
    except ValueError as problem:
        raise UserError(f"argument --resume: {path} is {problem}; choose another", exit_code=4) from problem


def resume(job: Job, start: Progress) -> Progress:
    """Puts the checkpoint back on all ranks, read by rank 0 alone, and returns its place; `start` if there is none."""
    found: list[Found] = []

    def look() -> str | None:
        restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
        hit = find(job.config.resume, job.checkpoints, restarted=restarted, say=job.say)
        if hit is None and job.config.must_resume:
            raise UserError(
                f"there is no whole checkpoint in {job.checkpoints.path} to resume from; start a job without RESUME",
                exit_code=4,
            )
        found.extend([hit] if hit else [])
        return str(hit[0]) if hit else None

    path = job.world.from_main(look)
    if path is None:
        return start
    content = job.world.bytes_from_main(found[0][1] if found else None)
    with job.world.alike():
        saved = restore(content, job.parts, start, job.world, seed=job.config.seed, say=job.say)
    progress = _translate(saved, start, job)
    job.metrics.event("resume", step=progress.step, checkpoint=path)
    job.say(f"resumed at step {progress.step}/{job.total_steps} from {path}")
    if progress.step >= job.total_steps:
        job.say("nothing is left to train; more --epochs or --max-steps would go on")
    return progress


def _translate(saved: Progress, start: Progress, job: Job) -> Progress:
    """The saved place in this run's steps: with another global batch, as many pictures on, rounded down to a step."""
    pictures = saved.position * saved.global_batch
    step = saved.epoch * job.steps_per_epoch + pictures // start.global_batch
    if saved.global_batch != start.global_batch:
        job.say(
            f"the checkpoint's global batch was {saved.global_batch}, now it is {start.global_batch}: "
            f"its step {saved.step} counts as {step} here"
        )
    epoch, position = divmod(step, job.steps_per_epoch)
    return replace(start, step=step, epoch=epoch, position=position, test_accuracy=saved.test_accuracy)
