"""torch.compile where it works; eager, and said aloud, where it doesn't."""

import os
import shutil
from collections.abc import Callable

import torch
from torch import nn

from trainer.batches import Pictures
from trainer.distributed import World
from trainer.precision import Precision

COMPILERS = ("c++", "g++", "clang++")


def compile_or_say(
    model: nn.Module, pictures: Pictures, batch: int, precision: Precision, world: World, say: Callable[[str], None]
) -> None:
    """Compiles the model in place (its keys stay plain) and tries it on a batch; a collective.

    One rank's failure makes all ranks eager, so that none waits for a slower one.
    """
    problems = [problem for problem in world.gather(_try(model, pictures, batch, precision, world)) if problem]
    if problems:
        model._compiled_call_impl = None
        say(f"warning: --compile: {problems[0]}; training eagerly")


def _try(model: nn.Module, pictures: Pictures, batch: int, precision: Precision, world: World) -> str | None:
    if not any(shutil.which(name) for name in (os.environ.get("CXX", COMPILERS[0]), *COMPILERS)):
        return "there is no C++ compiler on the PATH (install g++)"
    before = {name: value.clone() for name, value in model.state_dict().items()}
    try:
        model.compile()
        images, labels = pictures.batch(torch.arange(batch, device=world.device))
        with precision.autocast():
            logits = model(images)
        torch.autograd.backward(nn.functional.cross_entropy(logits.float(), labels))
    except Exception as error:  # compilers fail in many ways, and none of them is a reason not to train
        return f"{type(error).__name__}: {(str(error).strip() or '?').splitlines()[0]}"
    finally:
        model.zero_grad(set_to_none=True)
        model.load_state_dict(before)  # the trial has moved BatchNorm's averages
    return None
