"""torch.compile where it pays; eager where it doesn't or can't, with a line that says so."""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from trainer.data.batches.protocols import TrainingImages
from trainer.model.precision import Precision

COMPILERS = ("c++", "g++", "clang++")
WORTH_SECONDS = 120.0
"""Shorter runs are compiled only on request: compiling itself takes up to a minute."""
_WARM_UP, _TIMED = 3, 10
"""Steps of a trial. CUDA graphs first run eagerly, are then recorded, and are replayed from the third step on."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What a rank's trials run on: passes over a batch, as in training."""

    data: TrainingImages
    batch: int
    """Images of one pass."""
    precision: Precision
    device: torch.device


@dataclass(frozen=True, kw_only=True)
class Request:
    """`--compile`, and what its `auto` depends on."""

    how: str
    """auto, on, off or graphs."""
    passes: int
    """Forward/backward passes of the whole run."""
    accumulate: int
    deterministic: bool
    """A choice by measured time would not be the same each time."""


class _Graphed(nn.Module):
    """A model with CUDA graphs: each pass may overwrite the previous one's results."""

    def __init__(self, compiled: nn.Module) -> None:
        super().__init__()
        self._compiled = compiled

    def forward(self, images: Tensor) -> Tensor:
        """Return the model's logits."""
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        logits: Tensor = self._compiled(images)
        return logits


def keep_cache(data_dir: Path) -> None:
    """Keep compiled code beyond the run and a reboot: beside the data, unless the environment names a place."""
    if os.access(data_dir, os.W_OK):
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str((data_dir / "compiled").absolute()))


def choose(
    model: nn.Module,
    request: Request,
    trial: Trial,
    gather: Callable[[str | float], list[str | float]],
    say: Callable[[str], None],
) -> nn.Module:
    """Return the module to train with: `model`, or a compiled one around it with the same parameters; a collective.

    Evaluation still calls `model`, eagerly: each of its batch sizes and modes would be compiled anew. All ranks do the
    same, whichever is best for the slowest, so that none waits for another.
    """
    auto = request.how == "auto"
    if request.how == "off" or (auto and request.deterministic):
        return model
    # All ranks are asked: if only some have GPUs, none may wait for an exchange that the others don't take part in.
    if auto and not all(gather(float(trial.device.type == "cuda"))):
        return model
    eager = 0.0
    if auto:
        eager = _slowest(gather(_seconds_or_problem(model, trial)))
        if eager * request.passes < WORTH_SECONDS:
            say(f"not compiled: the run takes about {eager * request.passes:.0f} s")
            return model
    compiled = _compiled(model, request.how)
    results = gather(_missing(request.how, trial.device) or _seconds_or_problem(compiled, trial))
    problem = next((each for each in results if isinstance(each, str)), None)
    if problem:
        say(f"warning: --compile: {problem}; training eagerly")
        return model
    if auto:
        text, pays = verdict(eager, _slowest(results))
        say(text)
        if not pays:
            return model
    if request.how == "graphs" and request.accumulate > 1:
        _keep_gradients(model)
    return compiled


def verdict(eager: float, compiled: float) -> tuple[str, bool]:
    """Return a line for the user, and whether to compile, from the seconds of one forward and backward pass each."""
    pays = compiled < eager
    text = f"{eager * 1000:.1f} ms a pass eagerly, {compiled * 1000:.1f} compiled"
    return (f"compiled: {text}" if pays else f"not compiled: {text}"), pays


def _slowest(results: list[str | float]) -> float:
    """Return the longest time; a rank that failed takes forever, so a way that fails is never the fastest."""
    return max(float("inf") if isinstance(each, str) else each for each in results)


def _compiled(model: nn.Module, how: str) -> nn.Module:
    graphs = how == "graphs"
    compiled = cast(nn.Module, torch.compile(model, mode="reduce-overhead" if graphs else None))
    return _Graphed(compiled) if graphs else compiled


def _keep_gradients(model: nn.Module) -> None:
    """Copy each gradient out of the graph's memory, which the step's next pass overwrites."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_hook(torch.clone)  # type: ignore[no-untyped-call]


def _missing(how: str, device: torch.device) -> str | None:
    if how == "graphs" and device.type != "cuda":
        return "CUDA graphs need a GPU"
    # Triton itself reports what it needs for GPUs.
    names = (os.environ.get("CXX", COMPILERS[0]), *COMPILERS)
    if device.type == "cpu" and not any(shutil.which(name) for name in names):
        return "there is no C++ compiler on the PATH (install g++)"
    return None


def _seconds_or_problem(model: nn.Module, trial: Trial) -> str | float:
    """Return the seconds of a forward and backward pass, or why it failed; leave model and generators unchanged."""
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    devices = [trial.device] if trial.device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=devices):
            return _seconds(model, trial)
    except Exception as error:  # compilers fail in many ways, none of which is a reason not to train
        return f"{type(error).__name__}: {(str(error).strip() or '?').splitlines()[0]}"
    finally:
        model.zero_grad(set_to_none=True)
        with torch.no_grad():
            for buffer, value in before:  # the trial has moved BatchNorm's averages
                buffer.copy_(value)


def _seconds(model: nn.Module, trial: Trial) -> float:
    images, labels = trial.data.example(trial.batch)
    started = 0.0
    for number in range(_WARM_UP + _TIMED):
        if number == _WARM_UP:
            _wait(trial.device)
            started = time.monotonic()
        with trial.precision.autocast():
            logits = model(images)
        torch.autograd.backward(nn.functional.cross_entropy(logits.float(), labels))
        model.zero_grad(set_to_none=True)
    _wait(trial.device)
    return (time.monotonic() - started) / _TIMED


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
