"""One run from start to end: joins the ranks, makes the parts, resumes, trains, reports. Only wiring."""

import contextlib
import os
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from trainer import compiling, datasets, fetch, models, precision, results, scaling, state
from trainer.batches import Pictures
from trainer.checkpoint import CheckpointFolder, Progress
from trainer.config import Config
from trainer.distributed import World, join, leave, print_line, wrap
from trainer.errors import UserError
from trainer.job import Job
from trainer.loop import Loop
from trainer.memory import keep_freed_memory
from trainer.metrics import MetricsWriter
from trainer.resume import resume
from trainer.stopping import StopSignal


def run(config: Config) -> int:
    """Trains as asked; returns the exit code: 0, or 128 + the signal that stopped it. Raises UserError."""
    keep_freed_memory()
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS refuses deterministic mode without it
        torch.use_deterministic_algorithms(True)
    world = join(config)
    try:
        return _run(config, world)
    finally:
        with contextlib.suppress(Exception):  # an error on the way here matters more than one in closing
            leave()


def _run(config: Config, world: World) -> int:
    run_dir = world.from_main(lambda: _make_run_dir(config))
    job = _prepare(config, world, run_dir)
    start = Progress(
        step=0,
        epoch=0,
        position=0,
        world_size=world.world_size,
        global_batch=job.plan.global_batch,
        dataset=config.dataset,
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


def _load(config: Config, world: World) -> datasets.Dataset:
    name, data_dir, own_copy = config.dataset, config.data_dir, config.own_copy
    world.once_per_node(
        lambda: fetch.ensure(name, data_dir=data_dir, own_copy=own_copy, say=print_line, other_data=config.other_data)
    )
    return datasets.load(name, data_dir=data_dir, own_copy=own_copy, seed=config.seed, say=world.say)


def _prepare(config: Config, world: World, run_dir: Path) -> Job:
    data = _load(config, world)
    with world.alike():
        plan = scaling.plan_batch(config, world_size=world.world_size)
        per_epoch = scaling.steps_per_epoch(len(data.train_labels), plan.global_batch)
        chosen = precision.choose(config.precision, world.device)
    state.seed_everything(config.seed)  # the same on every rank: all start from the same parameters
    layout = torch.channels_last if config.channels_last else torch.contiguous_format
    channels, size = data.train_images.shape[1:3]
    model = models.build(config.model, channels=channels, size=size, classes=data.classes)
    model = model.to(world.device, memory_format=layout)  # type: ignore[call-overload]  # missing in torch's overloads

    def pictures(images: Tensor, labels: Tensor) -> Pictures:
        return Pictures(images, labels, mean=data.mean, std=data.std, device=world.device, memory_format=layout)

    train, test = pictures(data.train_images, data.train_labels), pictures(data.test_images, data.test_labels)
    if config.compile:
        compiling.compile_or_say(model, train, plan.micro_batch, chosen, world, world.say)
    peak_lr, lr_rule = scaling.learning_rate(config, plan.global_batch)
    job = Job(
        config=config,
        world=world,
        parts=state.Parts(model=model, optimizer=_optimizer(config, model, peak_lr), scaler=chosen.scaler()),
        wrapped=wrap(model, world, accumulate=config.accumulate),
        precision=chosen,
        plan=plan,
        train=train,
        test=test,
        steps_per_epoch=per_epoch,
        total_steps=scaling.total_steps(config, per_epoch),
        peak_lr=peak_lr,
        checkpoints=CheckpointFolder((config.checkpoint_dir or run_dir / "checkpoints").absolute()),
        metrics=MetricsWriter(run_dir / "metrics.jsonl" if world.is_main else None),
        stop=StopSignal(),
        say=world.say,
    )
    results.announce(job, data, lr_rule)
    return job


def _optimizer(config: Config, model: nn.Module, lr: float) -> torch.optim.Optimizer:
    decay = scaling.WEIGHT_DECAY[config.optimizer] if config.weight_decay is None else config.weight_decay
    if config.optimizer == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=decay)
    nesterov = config.momentum > 0  # torch refuses it without momentum
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=config.momentum, nesterov=nesterov, weight_decay=decay)
