"""The process runtime: a node is a torchrun agent on this machine, started, followed and stopped as a process."""

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress

from launcher.base.adoption import Adoption
from launcher.base.sweep import kill_sessions, signal_labelled, sweep
from launcher.follow.runtime import NotStartedError
from launcher.job.plan import NodePlan
from launcher.local.machine import holds_connection
from launcher.on_node.rank import die_with_parent

_LABEL = "RINGMASTER_LABEL"
"""In the environment of every process of a job. It finds the last one, whatever its name or session."""
_AGENTS_FOLDER = "PET_LOG_DIR"
"""torchrun makes a folder for what its ranks report there, else in the system's temporary folder, and leaves it."""
_PIPE_BYTES = 1 << 20
"""Of what a node prints, so much waits for the follower before its ranks do; Linux gives no more to everybody."""
_OF_MAKE = frozenset({"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "MAKE_TERMOUT", "MAKE_TERMERR"})


class ProcessNode:
    """A running node. The follower fills `ranks` with the process ids of the ranks' parents as they report."""

    def __init__(self, plan: NodePlan, port: int, process: "subprocess.Popen[bytes]", label: str) -> None:
        """Args:
        label: `NAME=value`, in the environment of every process of the node.
        """
        self.plan = plan
        self.ranks: dict[int, int] = {}
        self.lost: str | None = None  # never: a process of this machine can't be lost
        self.incomplete: str | None = None  # never: its output comes through a pipe
        self.clock_s = 0.0
        self._port = port
        self._process = process
        self._label = label

    @property
    def pid(self) -> int:
        """The agent's process id."""
        return self._process.pid

    def fileno(self) -> int:
        """Return the descriptor of the node's output."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def read(self) -> bytes:
        """Return what the node has printed since the last call; empty at the end of its output."""
        return os.read(self.fileno(), _PIPE_BYTES)

    def poll(self) -> int | None:
        """Return the agent's exit code (negative: signal), None while it runs."""
        return self._process.poll()

    def joined(self) -> bool:
        """Return whether the agent has come to the rendezvous."""
        try:
            return bool(self.ranks) or holds_connection(self._process.pid, self._port)
        except OSError:  # it ended just now
            return False

    def out_of_memory(self) -> str | None:
        """Return None: only the kernel's log says what the kernel killed, and only root may read it."""
        return None

    def signal_ranks(self, signum: int, only: int | None = None) -> None:
        """Hand a signal to the program of every rank, or to that of one rank."""
        for rank, pid in self.ranks.items():
            if only in (None, rank):
                signal_labelled(pid, signum, self._label)

    def terminate(self) -> None:
        """Ask the agent and its ranks to end."""
        self.signal_ranks(signal.SIGTERM)
        self._process.terminate()  # does nothing to an agent that has ended

    def kill(self) -> None:
        """End the agent, its ranks and their helpers at once; what ranks that ended have left, `sweep` finds."""
        # Every rank's parent leads a session of its own (torchrun starts it so), which its data workers share.
        leaders = (self._process.pid, *self.ranks.values())
        for leader in leaders:
            signal_labelled(leader, signal.SIGKILL, self._label, group=True)
        kill_sessions(leaders, self._label)


class ProcessRuntime:
    """Starts nodes as processes, and proves at the end that none is left."""

    survives = False

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Args:
        environment: the user's own, which every process inherits.
        """
        self._label = uuid.uuid4().hex
        self._marked = f"{_LABEL}={self._label}"
        self._adoption = Adoption()
        self._agents: list[int] = []
        self._scratch: str | None = None
        self._inherited = {key: value for key, value in environment.items() if not _private(key)}

    def start(self, nodes: Sequence[NodePlan], port: int) -> list[ProcessNode]:
        """Start every node's agent; if one can't be started, end those before it.

        Raises:
            NotStartedError: a program can't be started.
        """
        started: list[ProcessNode] = []
        self._adoption.open()
        if _AGENTS_FOLDER not in self._inherited:
            with suppress(OSError):
                self._scratch = tempfile.mkdtemp(prefix="ringmaster-")
                self._inherited[_AGENTS_FOLDER] = self._scratch
        try:
            for node in nodes:
                started.append(self._start(node, port))
                self._agents.append(started[-1].pid)
        except BaseException:
            for each in started:
                each.kill()
            raise
        return started

    def watch(self) -> tuple[str, ...]:
        """Return no node: a process of this machine is never out of reach."""
        self._adoption.bury(self._agents)
        return ()

    def news(self) -> tuple[str, ...]:
        """Return nothing: what there is to know of a process, the follower sees itself."""
        return ()

    def unseen(self) -> dict[str, str]:
        """Return no node: how a process of this machine ended is always known."""
        return {}

    def release(self) -> None:
        """Do nothing: the processes end with the launcher that started them."""

    def sweep(self) -> int:
        """Kill every process of the job, labelled or below us; return how many there were."""
        killed = sweep(self._marked, self._adoption.descendants)
        self._adoption.bury(self._agents)
        self._adoption.close()
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)
        return killed

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
            reason = f"can't start {node.argv[0]} in {node.working_folder}: {error.strerror}"
            raise NotStartedError(node.name, reason) from error
        assert process.stdout is not None
        with suppress(OSError, AttributeError):  # the system gives less, or is not Linux
            fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        return ProcessNode(node, port, process, self._marked)


def _private(key: str) -> bool:
    """Return whether a variable is between make and the launcher, and no business of the user's program."""
    return key in _OF_MAKE or key.startswith(("RM_", "RINGMASTER_"))
