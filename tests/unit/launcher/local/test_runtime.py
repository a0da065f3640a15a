"""Processes are signalled only while they are the job's own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.job.plan import NodePlan
from launcher.local.runtime import ProcessNode, ProcessRuntime
from tests.support.following import FOREVER, plan_of


@pytest.fixture
def stranger() -> Iterator["subprocess.Popen[bytes]"]:
    """Yield a process that leads a group of its own, and is none of the job's."""
    with subprocess.Popen([sys.executable, "-c", FOREVER], start_new_session=True) as process:
        yield process
        process.kill()


@pytest.fixture
def runtime() -> Iterator[ProcessRuntime]:
    """Yield a runtime; nothing is left of it afterwards, nor does this process stay the parent of orphans."""
    runtime = ProcessRuntime(os.environ)
    yield runtime
    runtime.sweep()


def started(runtime: ProcessRuntime, program: str) -> ProcessNode:
    plan: NodePlan = plan_of(program).nodes[0]
    return runtime.start([plan], 0)[0]


def spared(process: "subprocess.Popen[bytes]") -> bool:
    """End a process; return whether no signal was there before ours."""
    process.send_signal(signal.SIGVTALRM)  # of those that are pending, the kernel takes the lower number first
    return process.wait(timeout=30) == -signal.SIGVTALRM


def test_the_number_of_a_rank_that_ended_may_be_a_strangers(
    stranger: "subprocess.Popen[bytes]", runtime: ProcessRuntime
) -> None:
    node = started(runtime, FOREVER)
    node.ranks[0] = stranger.pid
    node.signal_ranks(signal.SIGTERM)
    node.kill()
    assert node._process.wait(timeout=30) == -signal.SIGKILL, "what is the job's own is ended"
    runtime.sweep()
    assert spared(stranger)


def test_the_number_of_an_agent_that_ended_may_be_a_strangers(
    stranger: "subprocess.Popen[bytes]", runtime: ProcessRuntime
) -> None:
    node = started(runtime, "pass")
    node._process.wait(timeout=30)
    node._process.pid = stranger.pid
    node.terminate()
    node.kill()
    assert spared(stranger)


def test_a_rank_and_its_helpers_are_ended(runtime: ProcessRuntime) -> None:
    starts = (
        "import os, subprocess, time\np = subprocess.Popen(['sleep', '600'])\nprint(os.getpid(), p.pid, flush=True)\n"
    )
    node = started(runtime, starts + FOREVER)
    said = b""
    while said.count(b"\n") < 2:
        said += node.read()
    parent = node._process.pid
    node.ranks[0] = parent
    node.kill()
    node._process.wait(timeout=30)
    helper = int(said.splitlines()[1].split()[-1])
    status = Path(f"/proc/{helper}/status")
    while status.exists() and "State:\tZ" not in status.read_text():  # a zombie until its parent looks
        time.sleep(0.01)
