"""Programs have a time limit, also those that can't be killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.module_utils.ringmaster.core import probe
from ansible.module_utils.ringmaster.core.program import finished


def test_what_it_prints_and_how_it_ends() -> None:
    done = finished(["sh", "-c", "cat; echo no >&2; exit 3"], text="yes")
    assert (done.returncode, done.stdout, done.stderr) == (3, "yes", "no\n")
    assert finished(["cat"]).stdout == "", "it reads nothing"


@pytest.fixture
def unkillable(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that somebody tried to kill, in vain: they hang in the kernel, as far as one can tell."""
    killed: list[int] = []
    monkeypatch.setattr(subprocess.Popen, "kill", lambda process: killed.append(process.pid))
    return killed


def end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)  # fails if it has ended, or was waited for
    os.waitpid(pid, 0)


def test_one_that_can_not_be_killed_is_left_behind(unkillable: list[int]) -> None:
    with pytest.raises(TimeoutError, match=r"^sleep 600 has not ended in 0.1 s$"):
        finished(["sleep", "600"], 0.1)
    end(unkillable[0])


@pytest.mark.skipif(sys.platform != "linux", reason="nvidia-smi is asked on nodes")
def test_so_is_an_nvidia_smi_that_hangs_in_the_driver(
    unkillable: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(probe, "_SECONDS", 0.1)
    with pytest.raises(RuntimeError, match="nvidia-smi did not answer in 0 s"):
        probe.ask_gpus()()
    end(unkillable[0])


def test_what_it_has_left_behind_does_not_hold_us_up(tmp_path: Path) -> None:
    """A helper in a session of its own keeps the program's output open."""
    note = tmp_path / "helper"
    with pytest.raises(TimeoutError):
        finished(["sh", "-c", f"setsid sh -c 'echo $$ >{note}; exec sleep 600' & exec sleep 600"], 1)
    os.kill(int(note.read_text()), signal.SIGKILL)  # fails if we have waited for its end
