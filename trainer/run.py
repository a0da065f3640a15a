"""One run from start to end: joins the ranks, makes the parts, resumes, trains, reports. Only wiring."""

import contextlib
import os
import time
from pathlib import Path

import torch
from torch import nn

from trainer.checkpoint import state
from trainer.checkpoint.files import CheckpointFolder, Progress
from trainer.config import scaling
from trainer.config.run_config import Config
from trainer.data.open_data import Opened, open_data
from trainer.distributed import affinity
from trainer.distributed.malloc import keep_freed_memory
from trainer.distributed.signals import StopSignal
from trainer.distributed.world import World, join, leave, wrap
from trainer.errors import UserError
from trainer.model import compiling, models, optimizers, precision
from trainer.model.data_parallel import data_parallel
from trainer.model.objective import Objective
from trainer.reporting.metrics import MetricsWriter
from trainer.training import results
from trainer.training.context import Job
from trainer.training.loop import Loop
from trainer.training.resume import resume


def run(config: Config) -> int:
    """Trains as asked; returns the exit code: 0, or 128 + the signal that stopped it. Raises UserError."""
    keep_freed_memory()
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS refuses deterministic mode without it
        torch.use_deterministic_algorithms(True)
    code = _run(config, join(config))
    with contextlib.suppress(Exception):  # all is done and written
        leave()  # not after an error: an exchange with a rank that is gone would be waited for
    return code


def _run(config: Config, world: World) -> int:
    run_dir = world.from_main(lambda: _make_run_dir(config))
    seat = affinity.take(world, config.bind)
    world.say(f"rank 0 computes with {seat}")
    job = _prepare(config, world, run_dir)
    start = Progress(
        step=0,
        epoch=0,
        position=0,
        world_size=world.world_size,
        global_batch=job.plan.global_batch,
        dataset=job.dataset,
        model=config.model,
        optimizer=config.optimizer,
        torch=str(torch.__version__),  # a subclass of str, which no safe loader reads
        test_accuracy=None,
    )
    job.stop.install()
    loop = Loop(job, resume(job, start))
    signal = loop.run()
    code = 128 + signal if signal else 0
    if world.is_main:
        results.finish(job, step=loop.progress.step, signal=signal)
        if config.job is None:
            results.summarize_run(job, run_dir, exit_code=code)
    return code


def _make_run_dir(config: Config) -> Path:
    path = (config.run_dir or Path("runs") / time.strftime("%Y%m%d-%H%M%S")).absolute()
    for folder in (path, config.checkpoint_dir or path / "checkpoints"):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"{folder} can't be made: {error.strerror}; choose another --run-dir", exit_code=2
            ) from error
    return path


def _prepare(config: Config, world: World, run_dir: Path) -> Job:
    layout = torch.channels_last if config.channels_last else torch.contiguous_format
    metrics = MetricsWriter(run_dir / "metrics.jsonl" if world.is_main else None)
    data = open_data(config, world, layout, metrics.event)
    with world.alike():
        plan = scaling.plan_batch(config, world_size=world.world_size)
        per_epoch = scaling.steps_per_epoch(len(data.train), plan.global_batch)
        chosen = precision.choose(config.precision, world.device, config.model)
        state.seed_everything(config.seed)  # the same on every rank: all start from the same parameters
        model = models.build(config.model, channels=data.channels, size=data.size, classes=data.classes)
    model = model.to(world.device, memory_format=layout)  # type: ignore[call-overload]  # missing in torch's overloads
    models.fit_to_data(model, data.train, size=data.size)
    total_steps = scaling.total_steps(config, per_epoch)
    called = _called(config, world, model, data, plan, chosen, total_steps)
    peak_lr, lr_rule = scaling.learning_rate(config, plan.global_batch)
    job = Job(
        config=config,
        world=world,
        parts=state.Parts(model=model, optimizer=optimizers.build(config, model, peak_lr), scaler=chosen.scaler()),
        wrapped=wrap(called, world, accumulate=config.accumulate),
        precision=chosen,
        plan=plan,
        objective=Objective(
            classes=data.classes,
            label_smoothing=config.label_smoothing,
            mixup=config.mixup,
            cutmix=config.cutmix,
        ),
        dataset=data.identity,
        train=data.train,
        test=data.test,
        steps_per_epoch=per_epoch,
        total_steps=total_steps,
        peak_lr=peak_lr,
        checkpoints=CheckpointFolder((config.checkpoint_dir or run_dir / "checkpoints").absolute()),
        metrics=metrics,
        stop=StopSignal(),
        say=world.say,
    )
    results.announce(job, data, lr_rule)
    return job


def _called(
    config: Config,
    world: World,
    model: nn.Module,
    data: Opened,
    plan: scaling.BatchPlan,
    chosen: precision.Precision,
    total_steps: int,
) -> nn.Module:
    """What a rank calls in training in place of `model`: it spread over GPUs, or compiled."""
    if config.strategy == "dp":
        return data_parallel(model, chosen)
    compiling.keep_cache(config.data_dir)
    wanted = compiling.Wanted(
        how=config.compile,
        passes=total_steps * plan.accumulate,
        accumulate=plan.accumulate,
        deterministic=config.deterministic,
    )
    trial = compiling.Trial(data=data.train, batch=plan.micro_batch, precision=chosen, device=world.device)
    return compiling.choose(model, wanted, trial, world.gather, world.say)
