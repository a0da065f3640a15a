"""What a checkpoint contains: everything that the next step depends on, as bytes."""

import io
import pickle
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from trainer.checkpoint.files import Progress
from trainer.distributed.world import World, average_buffers
from trainer.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The live objects that a checkpoint is taken from and restored to. `model` is the unwrapped one: plain keys."""

    model: nn.Module
    optimizer: Optimizer
    scaler: GradScaler


def seed_everything(seed: int) -> None:
    """Seed the CPU's and every GPU's generator."""
    torch.manual_seed(seed)


def _rng_state(world: World) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if world.device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(world.device)
    return states


def capture(parts: Parts, progress: Progress, world: World) -> bytes | None:
    """Return the checkpoint's content, on rank 0; a collective."""
    average_buffers(parts.model, world)
    rng = world.gather(_rng_state(world))
    if not world.is_main:
        return None
    buffer = io.BytesIO()
    content = {
        "progress": asdict(progress),
        "model": parts.model.state_dict(),
        "optimizer": _optimizer_state(parts),
        "scaler": parts.scaler.state_dict(),
        "rng": rng,
    }
    torch.save(content, buffer)
    return buffer.getvalue()


def model_bytes(model: nn.Module) -> bytes:
    """Return the plain state dict alone, on the CPU, for use elsewhere."""
    buffer = io.BytesIO()
    torch.save({name: value.cpu() for name, value in model.state_dict().items()}, buffer)
    return buffer.getvalue()


def restore(
    content: bytes, parts: Parts, expected: Progress, world: World, *, seed: int, say: Callable[[str], None]
) -> Progress:
    """Restore a checkpoint on every rank, and return where it was taken.

    `expected`: this run at step 0. Hyper-parameters are this run's, not the checkpoint's; the number of ranks may
    differ.

    Raises:
        UserError: exit code 2, naming the difference, if model, data set or optimizer differs; 4 if the content can't
            be read or would run code.
    """
    try:
        saved: dict[str, Any] = torch.load(  # noqa: TID251 - weights alone, so that no code in it is run
            io.BytesIO(content), map_location="cpu", weights_only=True
        )
        progress = Progress(**saved["progress"])
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, TypeError) as error:
        if "allocate memory" in str(error):  # torch's words where this rank's memory is short: the content may be good
            raise
        raise UserError(
            f"the checkpoint is not one of this trainer's, and was not loaded ({type(error).__name__}); "
            "choose another with --resume",
            exit_code=4,
        ) from error
    _check_model(saved["model"], parts.model.state_dict(), progress.model, expected.model)
    _check_dataset(progress.dataset, expected.dataset, say)
    if progress.optimizer != expected.optimizer:
        raise _mismatch(f"was made with --optimizer {progress.optimizer}, but this run has {expected.optimizer}")
    parts.model.load_state_dict(saved["model"])
    _restore_optimizer(saved["optimizer"], parts)
    if saved["scaler"] and parts.scaler.is_enabled():
        parts.scaler.load_state_dict(saved["scaler"])
    _restore_rng(saved["rng"], progress, world, seed=seed, say=say)
    return progress


def _optimizer_state(parts: Parts) -> dict[str, dict[str, Any]]:
    """Return the state by the parameters' names: a resumed run may group them differently."""
    return {
        name: parts.optimizer.state[parameter]
        for name, parameter in parts.model.named_parameters()
        if parameter in parts.optimizer.state
    }


def _restore_optimizer(saved: Mapping[str | int, Mapping[str, Any]], parts: Parts) -> None:
    named = dict(parts.model.named_parameters())
    names = list(named)  # older checkpoints number them in this order
    by_name = {names[key] if isinstance(key, int) else key: values for key, values in saved.items()}
    state = {}
    own = parts.optimizer.state_dict()["param_groups"]
    parameters = [parameter for group in parts.optimizer.param_groups for parameter in group["params"]]
    numbers = {parameter: number for number, parameter in enumerate(parameters)}
    for name, values in by_name.items():
        if named[name] in numbers:
            state[numbers[named[name]]] = {key: _in_layout(value, named[name]) for key, value in values.items()}
    parts.optimizer.load_state_dict({"state": state, "param_groups": own})


def _in_layout(value: Any, parameter: Tensor) -> Any:
    """Return a tensor of a parameter's state in that parameter's memory order, which fused optimizers rely on."""
    if not isinstance(value, Tensor) or value.dim() == 0:
        return value
    return torch.empty_like(parameter, dtype=value.dtype, device=value.device).copy_(value)


def _restore_rng(
    states: list[dict[str, Tensor]], progress: Progress, world: World, *, seed: int, say: Callable[[str], None]
) -> None:
    same = len(states) == world.world_size and ("cuda" in states[0]) == (world.device.type == "cuda")
    if same:
        torch.set_rng_state(states[world.rank]["cpu"])
        if world.device.type == "cuda":
            torch.cuda.set_rng_state(states[world.rank]["cuda"], world.device)
        return
    say(
        f"the checkpoint is of {len(states)} rank(s), this run has {world.world_size} on {world.device.type}: "
        "random generators are reseeded from seed, rank and step"
    )
    seed_everything(zlib.crc32(f"{seed} {world.rank} {progress.step}".encode()))


def _check_model(saved: Mapping[str, Tensor], own: Mapping[str, Tensor], was: str, now: str) -> None:
    if was == now and _shapes(saved) == _shapes(own):
        return
    models = f"is of --model {was}, but this run has {now}" if was != now else f"does not fit --model {now}"
    for name in [*own, *saved]:
        if name not in saved:
            raise _mismatch(f"{models}: its first missing key is {name}")
        if name not in own:
            raise _mismatch(f"{models}: its first unexpected key is {name}")
        if saved[name].shape != own[name].shape:
            shapes = f"{list(saved[name].shape)} instead of {list(own[name].shape)}"
            raise _mismatch(f"{models}: key {name} has shape {shapes}")
    raise _mismatch(models)


def _check_dataset(was: str, now: str, say: Callable[[str], None]) -> None:
    """Compare names or, for folders, `folder:<classes>/<files>`: labels must mean the same, files may come and go."""
    (was_name, _, was_classes), (name, _, classes) = (each.partition("/")[0].partition(":") for each in (was, now))
    if was_name != name:
        raise _mismatch(f"was made with --dataset {was_name}, but this run has {name}")
    if was_classes != classes:
        raise _mismatch("was made with other classes than the folders in --data")
    if was != now:
        say("warning: the files in --data are not the ones that the checkpoint was made with; continuing with these")


def _shapes(state: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in state.items()}


def _mismatch(what: str) -> UserError:
    return UserError(
        f"the checkpoint {what}; use the same, or start afresh: a job without RESUME, or --resume none", exit_code=2
    )
