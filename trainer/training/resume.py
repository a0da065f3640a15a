"""Finding the checkpoint to continue from, and continuing from it."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from trainer.checkpoint.files import CheckpointFolder, Progress, last_resort, patiently, read, reason
from trainer.checkpoint.state import restore
from trainer.errors import UserError
from trainer.training.context import RunContext

Checkpoint = tuple[Path, bytes]
"""A checkpoint's path and its content."""


def find(request: str, folder: CheckpointFolder, *, restarted: bool, say: Callable[[str], None]) -> Checkpoint | None:
    """Return the checkpoint to resume from; None to start afresh.

    `request` is auto, none, or the path of a checkpoint or of a folder of them. After a restart by torchrun, what this
    very run has written takes precedence over `none` and over a path.

    Raises:
        UserError: exit code 2 for a path without a checkpoint, 4 if there are some but none is intact, or if the
            newest can't be read.
    """
    if request == "auto" or restarted:
        own = folder.newest(say=say, set_aside=True)
        if own or request == "auto":
            return own and (own[0], own[2])
    checkpoint = None if request == "none" else _from_path(Path(request), say)
    retired = 0 if restarted else folder.retire()
    if retired:
        say(f"{retired} checkpoint(s) of an earlier run in {folder.path} are kept as *.old")
    return checkpoint


def _from_path(path: Path, say: Callable[[str], None]) -> Checkpoint | None:
    if path.is_dir():
        for folder in (CheckpointFolder(path), CheckpointFolder(path / "checkpoints", last_resort=last_resort(path))):
            newest = folder.newest(say=say, set_aside=False)
            if newest is not None:
                return newest[0], newest[2]
        raise UserError(f"argument --resume: there is no checkpoint in {path}", exit_code=2)
    try:
        return path, patiently(lambda: read(path.with_suffix(".json")))[1]
    except FileNotFoundError as missing:
        raise UserError(f"argument --resume: there is no {missing.filename}; choose another", exit_code=2) from missing
    except (OSError, MemoryError) as error:
        raise UserError(f"argument --resume: {path} can't be read: {reason(error)}; try again", exit_code=4) from error
    except ValueError as problem:
        raise UserError(f"argument --resume: {path} is {problem}; choose another", exit_code=4) from problem


def resume(context: RunContext, start: Progress) -> Progress:
    """Put the checkpoint back on all ranks, read by rank 0 alone, and return its place; `start` if there is none.

    Raises:
        UserError: on rank 0; exit code 2 or 4, as `find` and `state.restore`, and 4 if the launcher has promised a
            checkpoint and there is none.
        SystemExit: on the other ranks, with the same code.
    """
    checkpoints: list[Checkpoint] = []

    def look() -> str | None:
        restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
        checkpoint = find(context.checkpointing.resume, context.checkpoints, restarted=restarted, say=context.say)
        if checkpoint is None and context.checkpointing.must_resume:
            raise UserError(
                f"there is no whole checkpoint in {context.checkpoints.path} to resume from; "
                "start a job without RESUME",
                exit_code=4,
            )
        checkpoints.extend([checkpoint] if checkpoint else [])
        return str(checkpoint[0]) if checkpoint else None

    path = context.world.from_main(look)
    if path is None:
        return start
    content = context.world.bytes_from_main(checkpoints[0][1] if checkpoints else None)
    with context.world.alike():
        saved = restore(content, context.parts, start, context.world, seed=context.seed, say=context.say)
    progress = _translate(saved, start, context)
    context.metrics.event("resume", step=progress.step, checkpoint=path)
    context.say(f"resumed at step {progress.step}/{context.total_steps} from {path}")
    if progress.step >= context.total_steps:
        context.say("nothing is left to train; more --epochs or --max-steps would continue")
    return progress


def _translate(saved: Progress, start: Progress, context: RunContext) -> Progress:
    """Return the saved place in this run's steps.

    With another global batch that is as many images further on, rounded down to a whole step.
    """
    images = saved.position * saved.global_batch
    step = saved.epoch * context.steps_per_epoch + images // start.global_batch
    if saved.global_batch != start.global_batch:
        context.say(
            f"the checkpoint's global batch was {saved.global_batch}, now it is {start.global_batch}: "
            f"its step {saved.step} counts as {step} here"
        )
    epoch, position = divmod(step, context.steps_per_epoch)
    return replace(start, step=step, epoch=epoch, position=position, test_accuracy=saved.test_accuracy)
