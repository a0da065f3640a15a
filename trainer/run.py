"""One run from start to end: joins the ranks, makes the parts, resumes, trains, reports. Only wiring."""

import contextlib
import os
import time
from pathlib import Path

import torch
from torch import nn

from trainer.checkpoint import state
from trainer.checkpoint.files import CheckpointFolder, Progress, last_resort
from trainer.config import scaling
from trainer.config.run_config import Config
from trainer.config.sections import OutputConfig
from trainer.data.open_data import OpenedData, open_data
from trainer.distributed import affinity
from trainer.distributed.malloc import keep_freed_memory
from trainer.distributed.signals import StopSignal
from trainer.distributed.world import World, join, leave, wrap
from trainer.errors import UserError
from trainer.model import compiling, models, optimizers, precision
from trainer.model.data_parallel import data_parallel
from trainer.model.loss import Loss
from trainer.reporting.metrics import MetricsWriter
from trainer.training import results
from trainer.training.context import RunContext
from trainer.training.loop import Loop
from trainer.training.resume import resume


def run(config: Config) -> int:
    """Train as configured, and return the exit code: 0, or 128 + the signal that stopped training.

    Raises:
        UserError: whatever is wrong with the request, the machine or the data.
        SystemExit: on the ranks that leave it to another one to say what is wrong.
    """
    keep_freed_memory()
    if config.compute.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS refuses deterministic mode without it
        torch.use_deterministic_algorithms(True)
    code = _run(config, join(config.distributed))
    with contextlib.suppress(Exception):  # everything is done and written
        leave()  # not after an error: it would wait for an exchange with a rank that is gone
    return code


def _run(config: Config, world: World) -> int:
    run_dir = world.from_main(lambda: _make_run_dir(config.output))
    seat = affinity.take(world, config.distributed.bind)
    world.say(f"rank 0 computes with {seat}")
    context = _prepare(config, world, run_dir)
    start = Progress(
        step=0,
        epoch=0,
        position=0,
        world_size=world.world_size,
        global_batch=context.plan.global_batch,
        dataset=context.dataset,
        model=config.model,
        optimizer=config.optimization.optimizer,
        torch=str(torch.__version__),  # a subclass of str, which no safe loader reads
        test_accuracy=None,
    )
    context.stop.install()
    alone = world.is_main and config.output.job is None
    loop = Loop(context, resume(context, start))
    try:
        signal = loop.run()
    except UserError as error:
        if alone:
            results.summarize_run(context, run_dir, exit_code=error.exit_code, failure=str(error))
        raise
    code = 128 + signal if signal else 0
    if world.is_main:
        results.finish(context, step=loop.progress.step, signal=signal)
    if alone:
        results.summarize_run(context, run_dir, exit_code=code)
    return code


def _make_run_dir(output: OutputConfig) -> Path:
    path = (output.run_dir or Path("runs") / time.strftime("%Y%m%d-%H%M%S")).absolute()
    for folder in (path, output.checkpoint_dir or path / "checkpoints"):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"{folder} can't be made: {error.strerror}; choose another --run-dir", exit_code=2
            ) from error
    return path


def _prepare(config: Config, world: World, run_dir: Path) -> RunContext:
    layout = torch.channels_last if config.compute.channels_last else torch.contiguous_format
    metrics = MetricsWriter(run_dir / "metrics.jsonl" if world.is_main else None)
    data = open_data(config.data, config.augmentation, world, layout, seed=config.seed, record=metrics.event)
    with world.alike():
        plan = scaling.plan_batch(config.batch, world_size=world.world_size)
        per_epoch = scaling.steps_per_epoch(len(data.train), plan.global_batch)
        number_format = precision.choose(config.compute.precision, world.device, config.model)
        state.seed_everything(config.seed)  # the same on every rank: all start from the same parameters
        model = models.build(config.model, channels=data.channels, size=data.size, classes=data.classes)
    model = model.to(world.device, memory_format=layout)  # type: ignore[call-overload]  # missing in torch's overloads
    models.fit_to_data(model, data.train, size=data.size)
    total_steps = scaling.total_steps(config.training, per_epoch)
    called = _called(config, world, model, data, plan, number_format, total_steps)
    peak_lr, lr_rule = scaling.learning_rate(config.optimization, config.model, plan.global_batch)
    optimizer = optimizers.build(config.optimization, model, peak_lr)
    context = RunContext(
        training=config.training,
        evaluation=config.evaluation,
        checkpointing=config.checkpoints,
        seed=config.seed,
        timeout=config.distributed.timeout,
        world=world,
        parts=state.Parts(model=model, optimizer=optimizer, scaler=number_format.scaler()),
        wrapped=wrap(called, world, accumulate=plan.accumulate),
        precision=number_format,
        plan=plan,
        loss=Loss(classes=data.classes, **vars(config.loss)),
        dataset=data.identity,
        train=data.train,
        test=data.test,
        steps_per_epoch=per_epoch,
        total_steps=total_steps,
        peak_lr=peak_lr,
        checkpoints=CheckpointFolder(
            (config.output.checkpoint_dir or run_dir / "checkpoints").absolute(), last_resort=last_resort(run_dir)
        ),
        metrics=metrics,
        stop=StopSignal(),
        say=world.say,
    )
    results.announce(context, config, data, lr_rule)
    return context


def _called(
    config: Config,
    world: World,
    model: nn.Module,
    data: OpenedData,
    plan: scaling.BatchPlan,
    number_format: precision.Precision,
    total_steps: int,
) -> nn.Module:
    """Return what a rank calls in training in place of `model`: it spread over GPUs, or compiled."""
    if config.distributed.strategy == "dp":
        return data_parallel(model, number_format)
    compiling.keep_cache(config.data.data_dir)
    request = compiling.Request(
        how=config.compute.compile,
        passes=total_steps * plan.accumulate,
        accumulate=plan.accumulate,
        deterministic=config.compute.deterministic,
    )
    trial = compiling.Trial(data=data.train, batch=plan.micro_batch, precision=number_format, device=world.device)
    return compiling.choose(model, request, trial, world.gather, world.say)
