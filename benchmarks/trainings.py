"""Runs the bundled trainer in fresh processes, as a user's would be, and reads off its records what it took."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT
from launcher.local.machine import LOOPBACK, free_port, gpus, interface_of
from trainer.distributed.cores import facts, free_cores, parse_core_list
from trainer.reporting.summary import number, read_records

MOST_DEVICES = 8
_TIMEOUT_S = 900.0
_POLL_S = 0.1
_PATIENCE_S = 60.0
"""How long a process that was told to end may take: torchrun gives its ranks 30 s."""
_WARM_RECORDS = 2
"""Records at a run's start that don't count: the first step alone, then the second in which libraries still load."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A stand-in for a node: a part of this machine, kept to itself."""

    cores: tuple[int, ...]
    gpus: tuple[str, ...] = ()
    ranks: int = 1

    def environment(self) -> dict[str, str]:
        """Return the variables that keep its ranks to their own devices, with as many threads as they have cores."""
        return {
            "CUDA_VISIBLE_DEVICES": ",".join(self.gpus),
            "OMP_NUM_THREADS": str(max(1, len(self.cores) // self.ranks)),
            "GLOO_SOCKET_IFNAME": interface_of(LOOPBACK),
        }


@dataclass(frozen=True, kw_only=True)
class Training:
    """What one training took and reached."""

    seconds: tuple[float, ...]
    """Of training, for each epoch; evaluation and checkpoints are not in it."""
    accuracies: tuple[float, ...]
    """On the test images after each epoch, 0..1."""
    test_losses: tuple[float, ...]
    rates: tuple[float, ...] = ()
    """Training images per second, of all ranks, about once a second, without the start."""
    epoch_rates: tuple[float, ...] = ()
    """The same of each whole epoch; the first one warms up."""

    @property
    def warm_rates(self) -> tuple[float, ...]:
        """Return the rates of the epochs after the first, or of that one if there is no other."""
        return self.epoch_rates[1:] or self.epoch_rates

    @property
    def ends(self) -> tuple[float, ...]:
        """Return the seconds of training until the end of each epoch."""
        return tuple(accumulate(self.seconds))

    def epoch_reaching(self, accuracy: float) -> int | None:
        """Return the index of the first epoch at whose end the test accuracy is reached; None if it never is."""
        return next((index for index, reached in enumerate(self.accuracies) if reached >= accuracy), None)

    def seconds_to(self, accuracy: float) -> float | None:
        """Return the seconds of training until the end of that epoch."""
        epoch = self.epoch_reaching(accuracy)
        return None if epoch is None else self.ends[epoch]


def devices(cores: Sequence[int], gpu_ids: Sequence[str]) -> tuple[Node, ...]:
    """Return what one rank at a time can have for itself: each GPU with its share of the cores, else each core."""
    if not gpu_ids:
        return tuple(Node(cores=(core,)) for core in cores)
    share = max(1, len(cores) // len(gpu_ids))
    starts = [index * share % len(cores) for index in range(len(gpu_ids))]
    return tuple(
        Node(cores=tuple(cores[start : start + share]), gpus=(gpu,)) for start, gpu in zip(starts, gpu_ids, strict=True)
    )


def own_devices() -> tuple[Node, ...]:
    """This machine's, as far as this process may use them: as many as `even` says."""
    cores = one_thread_each(facts().cores, _siblings)[: free_cores()]
    return even(devices(cores, gpus(os.environ)))


def even(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the first of `nodes`, at most MOST_DEVICES; an even number if there are several, for two equal nodes."""
    count = min(len(nodes), MOST_DEVICES)
    return tuple(nodes[: count - count % 2 if count > 1 else count])


def one_thread_each(cores: Sequence[int], siblings: Callable[[int], frozenset[int]]) -> list[int]:
    """Return one core number of each physical core: the threads of a core share its arithmetic.

    `siblings`: the threads of a number's physical core, or nothing where that is not known.
    """
    firsts: list[int] = []
    for core in cores:
        if not siblings(core) & set(firsts):
            firsts.append(core)
    return firsts


def _siblings(core: int) -> frozenset[int]:
    """https://docs.kernel.org/admin-guide/cputopology.html."""
    try:
        return parse_core_list(Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text())
    except OSError:
        return frozenset()


def merged(parts: Sequence[Node]) -> Node:
    """Return one node with the devices of all `parts`, a rank on each."""
    cores = tuple(dict.fromkeys(core for part in parts for core in part.cores))
    return Node(cores=cores, gpus=tuple(gpu for part in parts for gpu in part.gpus), ranks=len(parts))


@contextmanager
def confined(node: Node) -> Iterator[None]:
    """Restrict processes that are started in the `with` block to the node's cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, node.cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def train(flags: Sequence[str], nodes: Sequence[Node] = ()) -> Training:
    """Train with these flags and this checkout's data: under torchrun on each of `nodes`, or plainly if there are none.

    Raises:
        RingmasterError: a process failed; what it said is on the screen.
    """
    with tempfile.TemporaryDirectory(prefix="ringmaster-bench-") as folder:
        arguments = _arguments(flags, folder)
        if nodes:
            _run_together(node_commands(nodes, arguments, free_port(LOOPBACK)))
        else:
            _run_together([([sys.executable, *arguments], {})])
        return _read(folder)


def train_apart(flags: Sequence[str], nodes: Sequence[Node]) -> tuple[Training, ...]:
    """A training of its own on each of `nodes`, all at once, which exchange nothing. Raises as `train`."""
    with ExitStack() as stack:
        folders = [stack.enter_context(tempfile.TemporaryDirectory(prefix="ringmaster-bench-")) for _ in nodes]
        commands = [
            node_commands([node], _arguments(flags, folder), port)[0]
            for node, folder, port in zip(nodes, folders, _ports_apart(len(nodes)), strict=True)
        ]
        _run_together(commands)
        return tuple(map(_read, folders))


def _ports_apart(count: int) -> list[int]:
    """Return a rendezvous port for each of this many trainings; the port after it is that training's too."""
    ports: list[int] = []
    while len(ports) < count:
        port = free_port(LOOPBACK)
        if all(abs(port - other) > 1 for other in ports):
            ports.append(port)
    return ports


def _arguments(flags: Sequence[str], folder: str) -> list[str]:
    arguments = ["-m", "trainer", "--data-dir", str(ROOT / "data"), "--run-dir", folder]
    # Checkpoints are the best ones and the last: the timer's would fall into some of the measured seconds.
    return [*arguments, "--resume", "none", "--checkpoint-seconds", "86400", *flags]


def _read(folder: str) -> Training:
    return training_of(read_records(Path(folder) / "metrics.jsonl"))


def node_commands(nodes: Sequence[Node], arguments: Sequence[str], port: int) -> list[tuple[list[str], dict[str, str]]]:
    """Return command and variables of the torchrun of each node."""
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    commands = []
    for rank, node in enumerate(nodes):
        pinned = ["taskset", "--cpu-list", ",".join(map(str, node.cores))] if shutil.which("taskset") else []
        command = [*pinned, torchrun, f"--nnodes={len(nodes)}", f"--nproc-per-node={node.ranks}"]
        command += [f"--node-rank={rank}", f"--master-addr={LOOPBACK}", f"--master-port={port}", *arguments]
        commands.append((command, node.environment()))
    return commands


def _run_together(commands: Sequence[tuple[list[str], dict[str, str]]], timeout: float = _TIMEOUT_S) -> None:
    """Run them at once. If one fails, or they take too long, end the others and show the output of all."""
    with tempfile.TemporaryFile("w+") as output:
        processes = [
            subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, **variables}, stdout=output, stderr=subprocess.STDOUT, text=True
            )
            for command, variables in commands
        ]
        try:
            fault = _fault(processes, time.monotonic() + timeout)
        finally:
            _end(processes)
        if fault:
            output.seek(0)
            sys.stderr.write(output.read())
            raise RingmasterError(f"{' '.join(commands[0][0])}: {fault}, see above", exit_code=ExitCode.FAILED)


def _fault(processes: Sequence[subprocess.Popen[str]], deadline: float) -> str:
    """Wait for the end of all, or the failure of one; return what went wrong, or nothing."""
    while time.monotonic() < deadline:
        codes = [process.poll() for process in processes]
        if any(codes):
            return f"ended with code {next(code for code in codes if code)}"
        if None not in codes:
            return ""
        time.sleep(_POLL_S)
    return "no end in time"


def _end(processes: Sequence[subprocess.Popen[str]]) -> None:
    """End those that still run: torchrun takes its ranks with it."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def training_of(records: Sequence[Mapping[str, Any]]) -> Training:
    """Return the figures of a run from its metrics.jsonl."""
    epochs = [record for record in records if record.get("kind") == "epoch"]
    steps = [rate for record in records if record.get("kind") == "step" and (rate := number(record, "images_per_s"))]
    # The last record is of what was left of a second.
    rates = steps[_WARM_RECORDS:-1] or steps[-1:]
    return Training(
        seconds=_column(epochs, "seconds"),
        accuracies=_column(epochs, "test_accuracy"),
        test_losses=_column(epochs, "test_loss"),
        rates=tuple(rates),
        epoch_rates=_column(epochs, "images_per_s"),
    )


def _column(records: Sequence[Mapping[str, Any]], key: str) -> tuple[float, ...]:
    return tuple(value for record in records if (value := number(record, key)) is not None)
