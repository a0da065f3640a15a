"""What a script's processes do when it ends: they are heard, have time to clean up, and nothing is left of them."""

import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher.base.adoption import seat
from tests.e2e.jobs import Job, Trainer

Script = Callable[..., Path]

SHARES = """
import os, sys, time
import torch, torch.distributed as dist, torch.multiprocessing as processes
from torch.utils.data import DataLoader

class Numbers:
    def __len__(self):
        return 32
    def __getitem__(self, place):
        return torch.full((1000,), float(place))

def say(_=None):
    print("pid", os.getpid(), flush=True)

if __name__ == "__main__":
    processes.set_sharing_strategy("file_system")
    dist.init_process_group("gloo")
    say()
    kept = [batch for batch in DataLoader(Numbers(), batch_size=4, num_workers=2, worker_init_fn=say)]
    print("shared", any(name.startswith("torch_") for name in os.listdir("/dev/shm")), flush=True)
    dist.barrier()
    if sys.argv[1:] == ["fails"] and dist.get_rank() == 1:
        sys.exit(3)
    if sys.argv[1:]:
        time.sleep(600)
    dist.destroy_process_group()
"""
CATCHES = """
import os, signal, sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(time.monotonic()))
dist.barrier()
if dist.get_rank() == 1:
    raise ValueError("boom")
while not told or time.monotonic() - told[0] < 4:
    time.sleep(0.05)
print("saved after", len(told), flush=True)
os._exit(0)
"""
LEAVES = """
import subprocess, sys
child = "import time\\nfor number in range(9): print('child', number, flush=True); time.sleep(0.2)"
subprocess.Popen([sys.executable, "-c", child])
hidden = subprocess.Popen(["env", "-i", "setsid", "sleep", "600"], stdin=-3, stdout=-3, stderr=-3)
print("hidden", hidden.pid, flush=True)
"""


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the folder for temporary files; a short path, for there will be sockets."""
    with tempfile.TemporaryDirectory(prefix="rm", dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def shared_by(job: Job) -> list[str]:
    """Names of the shared memory that the job's processes have left; each begins with its maker's number."""
    pids = {line.split()[1] for rank in ("node1:0", "node2:1") for line in job.lines_of(rank) if line[:4] == "pid "}
    assert len(pids) == 6, job.output
    return [
        each.name for each in Path("/dev/shm").iterdir() if each.name.startswith(tuple(f"torch_{pid}_" for pid in pids))
    ]


@pytest.mark.parametrize(("arguments", "code"), [("", 0), ("fails", 1)])
def test_shared_memory_is_gone(train: Trainer, script: Script, temporary: Path, arguments: str, code: int) -> None:
    job = train(SCRIPT=script(SHARES), ARGS=arguments)
    assert job.exit_code == code, job.output
    assert "shared True" in job.lines_of("node1:0")
    assert shared_by(job) == []
    assert list(temporary.iterdir()) == []
    assert "left behind" not in job.output, "the keeper of the shared memory has ended by itself"


def test_shared_memory_is_gone_after_ctrl_c(train: Trainer, script: Script, temporary: Path) -> None:
    name, process = train.start(SCRIPT=script(SHARES), ARGS="sleeps")
    assert process.stdout is not None
    output = ""
    while output.count("shared True") < 2:
        line = process.stdout.readline()
        assert line, output
        output += line
    (launcher,) = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
    os.kill(launcher, signal.SIGINT)
    rest, _ = process.communicate(timeout=120)
    job = Job(name=name, output=output + rest)
    assert job.exit_code == 130, job.output
    assert shared_by(job) == []
    assert list(temporary.iterdir()) == []


def test_who_catches_sigterm_hears_it_once_and_has_time_to_save(train: Trainer, script: Script) -> None:
    job = train(SCRIPT=script(CATCHES))
    assert job.exit_code == 1, job.output
    assert job.summary["failure"]["reason"] == "ValueError: boom"
    assert "ringmaster: waiting up to 30 s for node1:0, which catches SIGTERM" in job.output
    assert job.lines_of("node1:0")[-1] == "saved after 1", job.output


def test_a_child_is_heard_after_the_end_and_one_that_hides_is_ended(train: Trainer, script: Script) -> None:
    job = train(SCRIPT=script(LEAVES))
    assert job.exit_code == 0, job.output
    for rank in ("node1:0", "node2:1"):
        lines = job.lines_of(rank)
        assert [line for line in lines if line.startswith("child")] == [f"child {number}" for number in range(9)]
        (hidden,) = [int(line.split()[1]) for line in lines if line.startswith("hidden")]
        deadline = time.monotonic() + 30
        while seat(hidden) and time.monotonic() < deadline:  # killed; whoever gets it next takes note of it
            time.sleep(0.05)
        assert seat(hidden) is None
    assert re.search(r"2 process\(es\) that the job had left behind were ended", job.output)
