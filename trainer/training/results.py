"""What a run reports at its start and at its end, on the screen and in its folder."""

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
from trainer.config.run_config import Config
from trainer.config.scaling import batch_rule
from trainer.data.open_data import OpenedData
from trainer.reporting.metrics import started_at
from trainer.training.context import RunContext


def announce(context: RunContext, config: Config, data: OpenedData, lr_rule: str) -> None:
    """Print the banner and record the start."""
    world = context.world
    device = torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else "cpu"
    parameters = sum(parameter.numel() for parameter in context.parts.model.parameters())
    shape = f"{data.channels}x{data.size}x{data.size}"
    train, test = len(data.train), min(len(data.test), config.evaluation.max_val_items or len(data.test))
    if config.recipe is not None:
        context.say(f"recipe {config.recipe}, tuned for a test accuracy of {RECIPES[config.recipe].target:.1%}")
    context.say(
        f"{config.model}, {parameters:,} parameters; {config.data.dataset}: {train:,} + {test:,} images of {shape}"
    )
    context.say(f"{batch_rule(config.batch, context.plan)}; {lr_rule}; {context.total_steps} steps")
    context.say(
        f"{world.world_size} rank(s) on {world.nodes} node(s), {device}, {context.precision.name}, "
        f"{world.backend}, torch {torch.__version__}"
    )
    context.metrics.event(
        "start",
        dataset=config.data.dataset,
        model=config.model,
        recipe=config.recipe,
        world_size=world.world_size,
        global_batch=context.plan.global_batch,
        lr=context.peak_lr,
        epochs=config.training.epochs,
        total_steps=context.total_steps,
        device=device,
        precision=context.precision.name,
        backend=world.backend,
        seed=config.seed,
        torch=torch.__version__,
    )


def finish(context: RunContext, *, step: int, signal: int) -> None:
    """Record how training ended; if it is complete, write the model's parameters alone to model.pt."""
    if signal:
        context.metrics.event("stopped", step=step, signal=signal)
        context.say(f"stopped by signal {signal} after step {step}/{context.total_steps}; resume continues from there")
        return
    context.metrics.event("done", step=step)
    path = context.checkpoints.path / "model.pt"
    try:
        write_atomically(path, model_bytes(context.parts.model))
    except OSError as error:
        context.say(f"warning: {path} not written: {error.strerror}; the checkpoint holds the same parameters")
    context.say(f"done: step {step}, the trained model is {path}")


def summarize_run(context: RunContext, run_dir: Path, *, exit_code: int) -> None:
    """Write summary.json and report.html for a run that no launcher follows."""
    from trainer.reporting import page, summary  # not needed in every run

    records = summary.read_records(run_dir / "metrics.jsonl")
    figures = summary.summarize(records)
    since = started_at()
    first = summary.summarize([record for record in records if record.get("at", 0) >= since]).first_step_at
    result: dict[str, Any] = {
        "name": run_dir.name,
        "state": "stopped" if exit_code else "succeeded",
        "exit_code": exit_code,
        "nodes": [platform.node()]
        if context.world.nodes == 1
        else [f"node{n}" for n in range(1, context.world.nodes + 1)],
        "world_size": context.world.world_size,
        "backend": context.world.backend,
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
    context.say(f"report: {run_dir / 'report.html'}")
