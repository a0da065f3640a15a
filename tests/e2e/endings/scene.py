"""A job while it runs, for who wants to do something to it from outside."""

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.jobs import Job

_PATIENCE_S = 240


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One running job on nodes that are processes."""

    job: Job
    process: "subprocess.Popen[str]"

    def await_mark(self, name: str, rank: int) -> int:
        """Wait until a rank has left a mark; return its program's process id."""
        path = self.job.folder / f"{name}-{rank}"
        deadline = time.monotonic() + _PATIENCE_S
        while not path.exists():
            if self.process.poll() is not None:
                raise AssertionError(f"ended before rank {rank} left {name}:\n{self.process.communicate()[0]}")
            assert time.monotonic() < deadline, f"no {path.name} within {_PATIENCE_S} s"
            time.sleep(0.05)
        return int(path.read_text())

    def signal_program(self, rank: int, signum: int, mark: str = "here") -> None:
        """Send a signal to a rank's program."""
        os.kill(self.await_mark(mark, rank), signum)

    def signal_parent(self, rank: int, signum: int, mark: str = "here") -> None:
        """Send a signal to the program's parent, `on_node/rank.py`."""
        os.kill(_parent(self.await_mark(mark, rank)), signum)

    def signal_agent(self, rank: int, signum: int, mark: str = "here") -> None:
        """Send a signal to the agent, torchrun, of the node that a rank is on."""
        os.kill(_parent(_parent(self.await_mark(mark, rank))), signum)

    def signal_launcher(self, signum: int) -> None:
        """Send a signal to the launcher alone, which make has started."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        os.kill(int(children.split()[0]), signum)


def _parent(pid: int) -> int:
    """Return a process's parent. The command's name, in brackets, may hold anything."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
