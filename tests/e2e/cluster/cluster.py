"""A provisioned lab with the image on it, and the project's commands on it as a user types them."""

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.lab import Lab
from launcher.base.paths import ROOT
from tests.e2e.jobs import Job, Trainer

NODES = ("node1", "node2")
_JOBS = "/var/lib/ringmaster/jobs"


@dataclass(frozen=True, kw_only=True)
class Done:
    """What a command said, and the code in its last line."""

    output: str
    exit_code: int


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Two nodes, and who uses them."""

    machines: Lab
    trainer: Trainer

    @property
    def inventory(self) -> Path:
        return self.machines.place.inventory

    @property
    def image(self) -> str:
        """The image that `make image` recorded."""
        text = self.inventory.with_name("image.yml").read_text()
        return re.findall(r"^ringmaster_image: (\S+)$", text, re.MULTILINE)[0]

    def train(self, **variables: object) -> Job:
        """`make train` to its end."""
        with step("make train", variables):
            return self.trainer(**{"INVENTORY": self.inventory, **variables}, timeout=900)

    def start(self, **variables: object) -> "Running":
        """`make train`, and what is needed to interrupt it."""
        name, process = self.trainer.start(**{"INVENTORY": self.inventory, **variables})
        return Running(job=Job(name=name, output=""), process=process)

    def make(self, verb: str, *, checkout: Path = ROOT, **variables: object) -> Done:
        """Another of the project's commands, with the lab's inventory unless another is given."""
        variables = {"INVENTORY": self.inventory, **variables}
        with step(f"make {verb}", variables):
            return finished(start_make(verb, checkout, variables))

    def ssh(self, node: str, *words: str) -> str:
        """What a command prints on a node, run as the operator."""
        done = self.machines.ssh(node, shlex.join(words))
        assert done.returncode == 0, f"{node}: {shlex.join(words)}: {done.stderr}"
        return done.stdout

    def containers(self, job: str) -> dict[str, list[dict[str, Any]]]:
        """What `docker inspect` says of a job's containers, by node."""
        return {node: self._inspect(node, f"label=ringmaster.job={job}") for node in NODES}

    def image_on(self, node: str) -> dict[str, Any]:
        return dict(json.loads(self.ssh(node, "docker", "image", "inspect", self.image))[0])

    def traces(self) -> dict[str, tuple[list[str], list[str]]]:
        """What jobs have left on each node: the containers, and the folders."""
        return {
            node: (
                self.ssh(node, "docker", "ps", "-aq", "--no-trunc").split(),
                self.ssh(node, "ls", _JOBS).splitlines(),
            )
            for node in NODES
        }

    def processes(self, job: str) -> dict[str, str]:
        """The job's processes on each node, found by their environment as root sees it."""
        script = f"grep -lzsx RINGMASTER_JOB={job} /proc/[0-9]*/environ | wc -l"
        return {node: self.machines[node].run("sh", "-c", script).strip() for node in NODES}

    def assert_nothing_runs(self, job: Job) -> None:
        """No container, no process, and nobody at the rendezvous port."""
        assert self.containers(job.name) == {node: [] for node in NODES}
        assert self.processes(job.name) == dict.fromkeys(NODES, "0")
        for node in NODES:
            assert self.ssh(node, "ss", "-Hltn", f"sport = :{job.plan['port']}") == ""

    def moments(self, node: str, job: str, event: str) -> list[float]:
        """When something happened to the job's container (seconds since 1970), as the node's engine noted it."""
        now = time.time()
        chosen = ("--filter", f"label=ringmaster.job={job}", "--filter", f"event={event}", "--format", "{{.TimeNano}}")
        times = self.ssh(node, "docker", "events", f"--since={now - 3600:.0f}", f"--until={now:.3f}", *chosen)
        return [int(each) / 1e9 for each in times.split()]

    def steps_on_head(self, job: str) -> int:
        """How many records the job has written on its head."""
        return int(self.ssh(NODES[0], "sh", "-c", f"cat {_JOBS}/{job}/run/metrics.jsonl | wc -l"))

    def inventory_with(self, folder: Path, *replaced: tuple[str, str]) -> Path:
        """A copy of the inventory, its image and its keys, with some text in the place of some other."""
        folder.mkdir()
        for path in (self.machines.place.ssh_config, self.inventory.with_name("image.yml")):
            (folder / path.name).write_text(path.read_text())
        copy = folder / "hosts.yml"
        text = self.inventory.read_text()
        for old, new in replaced:
            assert old in text
            text = text.replace(old, new)
        copy.write_text(text)
        return copy

    def _inspect(self, node: str, match: str) -> list[dict[str, Any]]:
        ids = self.ssh(node, "docker", "ps", "-aq", "--filter", match).split()
        return list(json.loads(self.ssh(node, "docker", "inspect", *ids))) if ids else []


@dataclass(frozen=True, kw_only=True)
class Running:
    """A command that goes on while the test does something else."""

    job: Job
    process: "subprocess.Popen[str]"

    def await_steps(self, count: int = 2) -> None:
        """Wait until the job has written so many steps."""
        metrics = self.job.folder / "metrics.jsonl"
        self.until(lambda: metrics.exists() and metrics.read_text().count('"kind": "step"') >= count)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so; fail where the command ends before."""
        await_(lambda: condition() or self.process.poll() is not None)
        if self.process.poll() is not None and not condition():
            raise AssertionError(self.process.communicate()[0])

    def interrupt(self, signum: int = signal.SIGINT) -> None:
        """Send a signal to the launcher, which make has started."""
        os.kill(launcher_of(self.process), signum)

    def ended(self) -> Job:
        """Wait for the end."""
        return Job(name=self.job.name, output=self.process.communicate(timeout=900)[0])


def await_(condition: Callable[[], bool], seconds: float = 900) -> None:
    """Wait until something is so; fail where it takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not so within {seconds} s"
        time.sleep(0.1)


_LISTENER = """
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (16000, 16000))
held = []
for port in map(int, sys.stdin.readline().split()):
    try:
        held.append(socket.create_server(("", port)))
    except OSError:  # somebody has it already
        pass
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def held_ports(cluster: Cluster, ports: Collection[int]) -> Iterator[None]:
    """Somebody listens at these ports of the head."""
    place = cluster.machines.place
    words = ["ssh", "-F", place.ssh_config, "-o", "BatchMode=yes", NODES[0], shlex.join(["python3", "-c", _LISTENER])]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdin and listener.stdout
        print(*ports, file=listener.stdin, flush=True)
        assert listener.stdout.readline() == "held\n"
        yield
        listener.stdin.close()


def start_make(verb: str, checkout: Path, variables: Mapping[str, object]) -> "subprocess.Popen[str]":
    words = [f"{key}={value}" for key, value in variables.items()]
    return subprocess.Popen(
        ["make", "-s", "-C", str(checkout), verb, *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def finished(process: "subprocess.Popen[str]", timeout: float = 2400) -> Done:
    output = process.communicate(timeout=timeout)[0]
    codes = re.findall(r"^ringmaster: exit (\d+) \(.+\)$", output, re.MULTILINE)
    code = int(codes[-1]) if codes else process.returncode
    assert bool(code) == bool(process.returncode), output
    return Done(output=output, exit_code=code)


def launcher_of(process: "subprocess.Popen[str]") -> int:
    """The process that make has started."""
    (pid,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(pid)


@contextmanager
def step(what: str, variables: Mapping[str, object] | None = None) -> Iterator[None]:
    """Say how long something takes (`pytest -rP` shows it)."""
    words = " ".join(f"{key}={str(value)[:40]}" for key, value in (variables or {}).items() if key != "INVENTORY")
    began = time.monotonic()
    try:
        yield
    finally:
        print(f"[{time.monotonic() - began:5.1f} s] {what} {words}", flush=True)
