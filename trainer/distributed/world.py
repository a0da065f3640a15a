"""The ranks: who they are, what device each uses, and how they agree with one another."""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainer.config.sections import DistributedConfig
from trainer.distributed import gloo_threads
from trainer.errors import UserError

T = TypeVar("T")
LONG_WAIT = timedelta(hours=6)
"""For groups in which ranks wait for a download; a closed socket still reveals a dead rank at once."""


def print_line(line: str) -> None:
    """Print at once; go on silently if nobody listens any more, or a disk is full: neither is a reason to stop."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except OSError:
        return  # standard output is a file; the next line is tried again


@dataclass(frozen=True, kw_only=True)
class World:
    """One rank's place among all ranks. Works without process groups if there is only one rank."""

    rank: int
    local_rank: int
    world_size: int
    nodes: int
    device: torch.device
    backend: str
    data_group: Any
    """Carries gradients and sums, on `device`; None in a world of one."""

    @property
    def is_main(self) -> bool:
        """True on rank 0, the only one that prints and writes."""
        return self.rank == 0

    def say(self, line: str) -> None:
        """Print a line, on rank 0 only."""
        if self.is_main:
            print_line(line)

    def sum(self, values: Tensor) -> Tensor:
        """Return all ranks' sum of `values`, in place; a collective."""
        if self.world_size > 1:
            dist.all_reduce(values, group=self.data_group)
        return values

    def gather(self, value: T, group: Any = None) -> list[T]:
        """Return every rank's value, in rank order; a collective of small picklable objects."""
        values: list[Any] = [value] * self.world_size
        if self.world_size > 1:
            dist.all_gather_object(values, value, group=group)
        return values

    def from_main(self, make: Callable[[], T]) -> T:
        """Run `make` on rank 0 and return its small result everywhere; a collective.

        Raises:
            UserError: on rank 0, from `make`.
            SystemExit: with the same code, on the other ranks.
        """
        if self.world_size == 1:
            return make()
        produced: T | None = None
        error: UserError | None = None
        if self.is_main:
            try:
                produced = make()
            except UserError as caught:
                error = caught
        outcome: list[Any] = [produced, error and error.exit_code]
        dist.broadcast_object_list(outcome, src=0)
        if error is not None:
            raise error
        if outcome[1] is not None:
            raise SystemExit(outcome[1])  # rank 0 says why
        result: T = outcome[0]
        return result

    def bytes_from_main(self, content: bytes | None) -> bytes:
        """Return rank 0's bytes, on every rank; `content` is read on rank 0 only."""
        if self.world_size == 1:
            return content or b""
        size = self.from_main(lambda: len(content or b""))
        buffer = torch.empty(size, dtype=torch.uint8)
        if self.is_main:
            buffer = torch.frombuffer(bytearray(content or b""), dtype=torch.uint8)
        dist.broadcast(buffer, src=0)
        return buffer.numpy().tobytes()

    @contextmanager
    def alike(self) -> Iterator[None]:
        """Guard work that fails on all ranks alike: rank 0 raises the UserError, the others exit with its code."""
        try:
            yield
        except UserError as error:
            if self.is_main:
                raise
            raise SystemExit(error.exit_code) from error

    def once_per_node(self, work: Callable[[], None]) -> None:
        """Run `work` on local rank 0 of each node while the others wait; a UserError on any node ends all ranks."""
        error: UserError | None = None
        if self.local_rank == 0:
            try:
                work()
            except UserError as caught:
                error = caught
        with self.patient_group() as group:
            self.settle(error, group)

    @contextmanager
    def patient_group(self) -> Iterator[Any]:
        """Make a group of all ranks that outwaits a download: the default one gives up after --timeout."""
        group: Any = dist.new_group(backend="gloo", timeout=LONG_WAIT) if self.world_size > 1 else None
        yield group
        if group is not None:
            dist.destroy_process_group(group)

    def settle(self, error: UserError | None, group: Any) -> None:
        """End every rank if one has an error: that one raises it, the others exit silently; a collective."""
        codes = self.gather(error.exit_code if error else 0, group)
        if error is not None:
            raise error
        if any(codes):
            raise SystemExit(max(codes))  # the node where it failed says why


def _local_device(config: DistributedConfig, local_rank: int) -> torch.device:
    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if seen < config.planned_gpus:
        raise UserError(
            f"{config.planned_gpus} GPU(s) are planned for this node but torch sees {seen}; check the driver "
            "(nvidia-smi) and CUDA_VISIBLE_DEVICES, or use --backend gloo to train without GPUs",
            exit_code=3,
        )
    return torch.device("cuda", local_rank % seen) if seen else torch.device("cpu")


def _nccl_problem(device: torch.device, local_ranks: int) -> str | None:
    if device.type != "cuda":
        return "torch sees no GPU"
    if not dist.is_nccl_available():
        return "this torch is built without NCCL"
    if local_ranks > torch.cuda.device_count():
        return f"{local_ranks} ranks would share {torch.cuda.device_count()} GPU(s) of this node"
    return None


def join(config: DistributedConfig, env: Mapping[str, str] = os.environ) -> World:
    """Join the ranks that torchrun started (one alone without it), and agree on the backend.

    Raises:
        UserError: exit code 2 for a strategy that needs GPUs, 3 if a rank's device doesn't suit the backend.
    """
    rank, world_size = int(env.get("RANK", "0")), int(env.get("WORLD_SIZE", "1"))
    local_rank, local_ranks = int(env.get("LOCAL_RANK", "0")), int(env.get("LOCAL_WORLD_SIZE", "1"))
    nodes = int(env.get("GROUP_WORLD_SIZE", "1"))
    device = _local_device(config, local_rank)
    if config.strategy == "dp" and device.type != "cuda":
        raise UserError(
            "argument --strategy: dp divides each step among the GPUs of one process: n/a without GPUs, and torch sees "
            "none here; use --strategy none or ddp",
            exit_code=2,
        )
    problem = _nccl_problem(device, local_ranks)
    if config.backend == "nccl" and problem:
        raise UserError(f"argument --backend: nccl can't be used on rank {rank}: {problem}; use gloo", exit_code=3)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "gloo" if config.backend == "gloo" or problem else "nccl"
    group = None
    if world_size > 1:
        timeout = timedelta(seconds=config.timeout)
        # Objects and flags always travel over Gloo: they need no device, and NCCL would stall the GPU for them.
        dist.init_process_group("gloo", timeout=timeout)
        backends: list[str] = [backend] * world_size
        dist.all_gather_object(backends, backend)
        backend = "nccl" if set(backends) == {"nccl"} else "gloo"
        group = dist.new_group(backend=backend, timeout=timeout)
        gloo_threads.let_others_first()
    return World(
        rank=rank,
        local_rank=local_rank,
        world_size=world_size,
        nodes=nodes,
        device=device,
        backend=backend,
        data_group=group,
    )


def leave() -> None:
    """Close the process groups, so that no rank warns about them."""
    if dist.is_initialized():
        dist.destroy_process_group()


def wrap(model: nn.Module, world: World, *, accumulate: int) -> nn.Module:
    """Return the module to call in training: with gradients averaged over ranks if there is more than one."""
    return model if world.world_size == 1 else with_gradients_averaged(model, world, accumulate=accumulate)


def with_gradients_averaged(model: nn.Module, world: World, *, accumulate: int) -> DistributedDataParallel:
    """Return `model` in DDP's wrapper, for models in which every parameter takes part in every pass."""
    settings: dict[str, Any] = {
        "device_ids": [world.device] if world.device.type == "cuda" else None,
        "process_group": world.data_group,
        "gradient_as_bucket_view": True,
        # no_sync makes the graph's hooks differ between passes, which static_graph rules out.
        "static_graph": accumulate == 1,
        "batched_grad_copy": world.device.type == "cuda",
    }
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    # `average_buffers` averages buffers where they are read, so they needn't be sent before every forward pass.
    settings["forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"] = False
    return DistributedDataParallel(model, **{name: value for name, value in settings.items() if name in known})


def average_buffers(model: nn.Module, world: World) -> None:
    """Replace floating-point buffers (BatchNorm statistics) by their mean over ranks; a collective.

    Each rank has seen other images. Only evaluation and checkpoints read these buffers, training doesn't. They are
    running averages, so taking their mean at any time leaves later means unchanged.
    """
    buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    if world.world_size == 1 or not buffers:
        return
    flat = world.sum(torch.cat([buffer.flatten() for buffer in buffers])) / world.world_size
    for buffer, mean in zip(buffers, torch.split(flat, [buffer.numel() for buffer in buffers]), strict=True):
        buffer.copy_(mean.view_as(buffer))
