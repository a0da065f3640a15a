"""Ranks on their cores: real processes of this machine."""

import os
import subprocess
import sys

import pytest

from launcher.base.paths import ROOT

TAKE = """
import os, sys, torch
from trainer.distributed import affinity
from trainer.config.run_config import parse
from trainer.distributed.world import join, leave
world = join(parse([], {}).distributed)
torch.ones(4096, 64).sum()  # the pool of threads is there before
seat = affinity.take(world, sys.argv[1])
threads = {frozenset(os.sched_getaffinity(int(name))) for name in os.listdir("/proc/self/task")}
print(ascii((seat.threads, seat.cores, sorted(map(sorted, threads)))), flush=True)
leave()
"""


def seats(bind: str, ranks: int) -> list[tuple[int, tuple[int, ...] | None, list[list[int]]]]:
    """Return the seat of each of this many ranks, which are nodes of their own on this machine."""
    shared = {"WORLD_SIZE": str(ranks), "GROUP_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"}
    environment = {**os.environ, **shared, "MASTER_PORT": str(20000 + os.getpid() % 10000), "OMP_NUM_THREADS": "2"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", TAKE, bind],
            env={**environment, "RANK": str(rank)},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    return [eval(process.communicate(timeout=240)[0]) for process in processes]  # noqa: S307 - what we printed


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core can't be shared out")
def test_two_nodes_on_this_machine_never_share_a_core() -> None:
    first, second = seats("auto", 2)
    assert first[1] is not None and second[1] is not None
    assert set(first[1]) | set(second[1]) == os.sched_getaffinity(0)
    assert not set(first[1]) & set(second[1])
    assert (first[2], second[2]) == ([sorted(first[1])], [sorted(second[1])]), "every thread"
    assert first[0] <= len(first[1]) and second[0] <= len(second[1])


def test_none_binds_nothing_but_fits_the_threads() -> None:
    every = [sorted(os.sched_getaffinity(0))]
    assert [(cores, where) for _, cores, where in seats("none", 2)] == [(None, every)] * 2
