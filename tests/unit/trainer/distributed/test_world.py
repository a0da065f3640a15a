import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from trainer.__main__ import refuse_world
from trainer.config.run_config import parse
from trainer.distributed import world as distributed
from trainer.distributed.world import World, average_buffers, join, wrap
from trainer.errors import UserError

CPU = torch.device("cpu")


def world(rank: int, world_size: int) -> World:
    return World(
        rank=rank, local_rank=rank, world_size=world_size, nodes=1, device=CPU, backend="gloo", data_group=None
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without GPU")
@pytest.mark.parametrize(
    ("flags", "backend", "gpus", "code"),
    [
        ([], "nccl", "1", 3),
        ([], "gloo", "1", 3),  # the launcher's choice, for ranks that share a GPU: it counts on that GPU all the same
        (["--backend", "nccl"], "", "0", 3),
        (["--backend", "gloo"], "", "1", None),
        ([], "gloo", "0", None),
    ],
)
def test_planned_gpus_that_torch_does_not_see(flags: list[str], backend: str, gpus: str, code: int | None) -> None:
    config = parse(flags, {"RINGMASTER_GPUS": gpus, "RINGMASTER_BACKEND": backend}).distributed
    if code is None:
        assert join(config, {}).device.type == "cpu"
    else:
        with pytest.raises(UserError) as caught:
            join(config, {})
        assert caught.value.exit_code == code


def test_strategy_none_is_refused_by_rank_0_with_a_message_and_by_the_others_silently() -> None:
    config = parse(["--strategy", "none"], {})
    with pytest.raises(UserError, match="--strategy"):
        refuse_world(config, {"RANK": "0", "WORLD_SIZE": "2"})
    with pytest.raises(SystemExit) as silent:
        refuse_world(config, {"RANK": "1", "WORLD_SIZE": "2"})
    assert silent.value.code == 2
    refuse_world(config, {})


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without GPU")
def test_data_parallel_without_gpus_is_refused() -> None:
    with pytest.raises(UserError, match="n/a without GPUs") as caught:
        join(parse(["--strategy", "dp"], {}).distributed, {})
    assert caught.value.exit_code == 2


def test_one_rank_needs_no_wrapper() -> None:
    model = nn.Linear(1, 1)
    assert wrap(model, world(0, 1), accumulate=1) is model


def test_an_error_that_all_ranks_meet_is_raised_once() -> None:
    with pytest.raises(UserError), world(0, 2).alike():
        raise UserError("no", exit_code=4)
    with pytest.raises(SystemExit) as silent, world(1, 2).alike():
        raise UserError("no", exit_code=4)
    assert silent.value.code == 4


def test_buffers_become_the_mean_over_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm2d(2))
    other = torch.arange(10.0)  # what the other rank sends: two means and two variances of 3 and 2 channels
    monkeypatch.setattr(distributed.dist, "all_reduce", lambda values, group: values.add_(other))
    before = torch.cat([buffer.flatten() for buffer in model.buffers() if buffer.is_floating_point()])
    average_buffers(model, world(0, 2))
    after = torch.cat([buffer.flatten() for buffer in model.buffers() if buffer.is_floating_point()])
    torch.testing.assert_close(after, (before + other) / 2)


def test_output_onto_a_full_disk_does_not_end_training() -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom trainer.distributed.world import print_line\n"
        "from trainer.reporting.metrics import MetricsWriter\n"
        "for n in range(9999): print_line('x' * 99)\nMetricsWriter(Path('/dev/full')).event('start')\nos._exit(7)"
    )
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=full, check=False)
    assert done.returncode == 7


def test_a_listener_that_goes_away_stops_nothing() -> None:
    code = "from trainer.distributed.world import print_line\nfor n in range(9999): print_line('x' * 99)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(240) == 0
