"""The process runtime: a node is a torchrun agent on this machine, started, followed and stopped as a process."""

import os
import signal
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress

from launcher.base.sweep import sweep
from launcher.follow.runtime import NotStartedError
from launcher.job.plan import NodePlan
from launcher.local.machine import holds_connection
from launcher.on_node.rank import die_with_parent

_LABEL = "RINGMASTER_LABEL"
"""In the environment of every process of a job: by it the last one is found, whatever its name or session."""
_OF_MAKE = frozenset({"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "MAKE_TERMOUT", "MAKE_TERMERR"})


class ProcessNode:
    """A running node. `ranks` fills with the process ids of its ranks' parents as they report."""

    def __init__(self, plan: NodePlan, port: int, process: "subprocess.Popen[bytes]") -> None:
        self.plan = plan
        self.ranks: dict[int, int] = {}
        self.lost: str | None = None  # a process of this machine can't be
        self._port = port
        self._process = process

    def fileno(self) -> int:
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def read(self) -> bytes:
        """What it printed since; empty at the end."""
        return os.read(self.fileno(), 1 << 16)

    def poll(self) -> int | None:
        """The agent's exit code (negative: signal), None while it runs."""
        return self._process.poll()

    def joined(self) -> bool:
        """Whether the agent has come to the rendezvous."""
        try:
            return bool(self.ranks) or holds_connection(self._process.pid, self._port)
        except OSError:  # it ended just now
            return False

    def out_of_memory(self) -> str | None:
        """Nothing here tells: the kernel's log says what it killed, to root."""
        return None

    def signal_ranks(self, signum: int, only: int | None = None) -> None:
        """Hand a signal to every rank's program, or to that of one rank."""
        for rank, pid in self.ranks.items():
            if only in (None, rank):
                with suppress(ProcessLookupError):
                    os.kill(pid, signum)

    def terminate(self) -> None:
        """Ask the agent and its ranks to end."""
        self.signal_ranks(signal.SIGTERM)
        with suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """End the agent, its ranks and their helpers at once."""
        # Every rank's parent leads a session of its own (torchrun starts it so), which its data workers share.
        for leader in (self._process.pid, *self.ranks.values()):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(leader, signal.SIGKILL)


class ProcessRuntime:
    """Starts nodes as processes, and proves at the end that none is left."""

    survives = False

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Args: environment: the user's own, which every process inherits."""
        self._label = uuid.uuid4().hex
        self._inherited = {key: value for key, value in environment.items() if not _private(key)}

    def start(self, nodes: Sequence[NodePlan], port: int) -> list[ProcessNode]:
        """Start every node's agent; if one can't be, those before it are ended.

        Raises:
            NotStartedError: a program can't be started.
        """
        started: list[ProcessNode] = []
        try:
            for node in nodes:
                started.append(self._start(node, port))
        except BaseException:
            for each in started:
                each.kill()
            raise
        return started

    def watch(self) -> tuple[str, ...]:
        """Nodes that are out of reach: never a process of this machine."""
        return ()

    def release(self) -> None:
        """Processes end with whoever started them."""

    def sweep(self) -> int:
        """Kill whatever still carries the job's label; return how many there were."""
        return sweep(f"{_LABEL}={self._label}")

    def _start(self, node: NodePlan, port: int) -> ProcessNode:
        try:
            process = subprocess.Popen(
                node.argv,
                cwd=node.working_folder,
                env={**self._inherited, **node.environment, _LABEL: self._label},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # the terminal's Ctrl-C is the launcher's to hand on
                preexec_fn=lambda: die_with_parent(signal.SIGTERM),
            )
        except OSError as error:
            why = f"can't start {node.argv[0]} in {node.working_folder}: {error.strerror}"
            raise NotStartedError(node.name, why) from error
        return ProcessNode(node, port, process)


def _private(key: str) -> bool:
    """Variables that are between make and the launcher, no business of the user's program."""
    return key in _OF_MAKE or key.startswith(("RM_", "RINGMASTER_"))
