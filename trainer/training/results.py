"""What a run says of itself at its start and its end, on the screen and in its folder."""

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from trainer.checkpoint.files import write_atomically
from trainer.checkpoint.state import model_bytes
from trainer.config.recipes import RECIPES
from trainer.config.scaling import batch_rule
from trainer.data.open_data import Opened
from trainer.reporting.metrics import started_at
from trainer.training.context import Job


def announce(job: Job, data: Opened, lr_rule: str) -> None:
    """Prints the banner and records the start."""
    config, world = job.config, job.world
    device = torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else "cpu"
    parameters = sum(parameter.numel() for parameter in job.parts.model.parameters())
    shape = f"{data.channels}x{data.size}x{data.size}"
    train, test = len(data.train), min(len(data.test), config.max_val_items or len(data.test))
    if config.recipe is not None:
        job.say(f"recipe {config.recipe}, meant for a test accuracy of {RECIPES[config.recipe].target:.1%}")
    job.say(f"{config.model}, {parameters:,} parameters; {config.dataset}: {train:,} + {test:,} pictures of {shape}")
    job.say(f"{batch_rule(config, job.plan)}; {lr_rule}; {job.total_steps} steps")
    job.say(
        f"{world.world_size} rank(s) on {world.nodes} node(s), {device}, {job.precision.name}, "
        f"{world.backend}, torch {torch.__version__}"
    )
    job.metrics.event(
        "start",
        dataset=config.dataset,
        model=config.model,
        recipe=config.recipe,
        world_size=world.world_size,
        global_batch=job.plan.global_batch,
        lr=job.peak_lr,
        epochs=config.epochs,
        total_steps=job.total_steps,
        device=device,
        precision=job.precision.name,
        backend=world.backend,
        seed=config.seed,
        torch=torch.__version__,
    )


def finish(job: Job, *, step: int, signal: int) -> None:
    """Records how training ended and, where it is complete, writes the model's parameters alone to model.pt."""
    if signal:
        job.metrics.event("stopped", step=step, signal=signal)
        job.say(f"stopped by signal {signal} after step {step}/{job.total_steps}; resume goes on from there")
        return
    job.metrics.event("done", step=step)
    path = job.checkpoints.path / "model.pt"
    try:
        write_atomically(path, model_bytes(job.parts.model))
    except OSError as error:
        job.say(f"warning: {path} not written: {error.strerror}; the checkpoint holds the same")
    job.say(f"done: step {step}, the trained model is {path}")


def summarize_run(job: Job, run_dir: Path, *, exit_code: int) -> None:
    """Writes summary.json and report.html for a run that no launcher follows."""
    from trainer.reporting import (
        page,
        summary,  # not needed in every run
    )

    records = summary.read_records(run_dir / "metrics.jsonl")
    figures = summary.summarize(records)
    since = started_at()
    first = summary.summarize([record for record in records if record.get("at", 0) >= since]).first_step_at
    result: dict[str, Any] = {
        "name": run_dir.name,
        "state": "stopped" if exit_code else "succeeded",
        "exit_code": exit_code,
        "nodes": [platform.node()] if job.world.nodes == 1 else [f"node{n}" for n in range(1, job.world.nodes + 1)],
        "world_size": job.world.world_size,
        "backend": job.world.backend,
        "image": None,
        "started_at": datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds"),
        "first_step_s": None if first is None else round(first - since, 3),
        "wall_s": round(datetime.now(UTC).timestamp() - since, 3),
        "restarts": int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
        "images_per_s": figures.images_per_s,
        "test_accuracy": figures.test_accuracy,
        "epochs": figures.epochs,
        "checkpoint": figures.checkpoint,
        "failure": None,
    }
    (run_dir / "summary.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (run_dir / "report.html").write_text(page.render(records, result), encoding="utf-8")
    job.say(f"report: {run_dir / 'report.html'}")
