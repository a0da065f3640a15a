"""What a run reports at its start and at its end, on the screen and in its folder."""

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from trainer.checkpoint.files import reason, write_atomically
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
    content = model_bytes(context.parts.model)
    for folder in context.checkpoints.folders:
        path = folder / "model.pt"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content)
        except OSError as error:
            context.warn(f"{path} not written: {reason(error)}; the checkpoint holds the same parameters")
        else:
            context.say(f"done: step {step}, the trained model is {path}")
            return
    context.say(f"done: step {step}; the trained model is in the checkpoint only")


def summarize_run(context: RunContext, run_dir: Path, *, exit_code: int, failure: str | None = None) -> None:
    """Write summary.json and report.html for a run that no launcher follows.

    Args:
        context: what the run consisted of.
        run_dir: where both files go; if the disk refuses them, the run's end stays what it is.
        exit_code: 0, 128 + the signal that stopped training, or the failure's.
        failure: why training failed, in one line.
    """
    from trainer.reporting import page, summary  # not needed in every run

    records = summary.read_records(run_dir / "metrics.jsonl")
    result = _summary(context, run_dir, records, exit_code, failure)
    report = run_dir / "report.html"
    try:
        write_atomically(run_dir / "summary.json", (json.dumps(result, indent=1) + "\n").encode())
        write_atomically(report, page.render(records, result).encode())
    except OSError as error:
        context.say(f"warning: summary.json and report.html not written to {run_dir}: {reason(error)}")
    else:
        context.say(f"report: {report}")


def _summary(
    context: RunContext, run_dir: Path, records: list[dict[str, Any]], exit_code: int, failure: str | None
) -> dict[str, Any]:
    from trainer.reporting import summary

    world, since = context.world, started_at()
    figures = summary.summarize(records)
    mine = [record for record in records if (summary.number(record, "at") or 0) >= since]
    first = summary.summarize(mine).first_step_at
    node = platform.node()
    ended = "stopped" if exit_code else "succeeded"
    return {
        "name": run_dir.name,
        "state": "failed" if failure else ended,
        "exit_code": exit_code,
        "nodes": [node] if world.nodes == 1 else [f"node{number}" for number in range(1, world.nodes + 1)],
        "world_size": world.world_size,
        "backend": world.backend,
        "image": None,
        "started_at": datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds"),
        "first_step_s": None if first is None else round(first - since, 3),
        "wall_s": round(datetime.now(UTC).timestamp() - since, 3),
        "restarts": int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
        "images_per_s": figures.images_per_s,
        "test_accuracy": figures.test_accuracy,
        "epochs": figures.epochs,
        "checkpoint": summary.last_checkpoint(records, os.path.exists),
        "failure": failure
        and {
            "node": node,
            "rank": 0,
            "exit_code": exit_code,
            "signal": None,
            "reason": failure,
            "log_tail": [],
            "hint": None,
        },
    }
