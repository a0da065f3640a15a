"""A node whose ranks run in a container: follow it, signal it and stop it over its SSH connection."""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import docker
from docker.errors import APIError, NotFound

from launcher.base.errors import RingmasterError
from launcher.cluster.engine import containers
from launcher.cluster.engine.log_cursor import LogCursor
from launcher.cluster.sockets import SOCKETS, has_socket
from launcher.job.container import IMAGE_PYTHON, IMAGE_RANK_PROGRAM
from launcher.job.plan import NodePlan
from launcher.ssh.connection import Remote, Trouble
from launcher.ssh.pool import open_all

_HEARTBEAT_S = 2.0
_ANSWER_S = 8.0
"""A node that doesn't answer for this long is out of reach."""
_AGAIN_S = 2.0
"""How long to wait between two attempts to reach it again."""

_RANK_COMMAND = " ".join((str(IMAGE_PYTHON), "-IS", str(IMAGE_RANK_PROGRAM)))
_KILL = """
signal=$1 command=$2
shift 2
if [ $# -eq 0 ]; then
    for folder in /proc/[0-9]*; do
        [ "$(tr '\\0' ' ' <"$folder/cmdline" 2>/dev/null)" = "$command " ] && set -- "$@" "${folder#/proc/}"
    done
fi
[ $# -eq 0 ] || kill "$signal" "$@"
"""


class DockerNode:
    """A running node. As its ranks report, `ranks` fills with the process IDs, in the container, of their parents."""

    def __init__(self, plan: NodePlan, remote: Remote, container_id: str, port: int, pins: Path) -> None:
        self.plan = plan
        self.ranks: dict[int, int] = {}
        self.unreachable_since: float | None = None
        self.lost: str | None = None
        """Why the node counts as lost; `DockerRuntime` sets it after asking another node."""
        self.gone = False
        """Whether somebody removed its container before it was seen to end."""
        self.remote = remote
        self._container_id = container_id
        self._port = port
        self._pins = pins
        self._code: int | None = None
        self._joined = False
        self._heard_at = time.monotonic()
        self._let_go = threading.Event()
        self._output, self._writing = os.pipe()
        threading.Thread(target=self._follow, daemon=True).start()
        threading.Thread(target=self._listen, daemon=True).start()

    def fileno(self) -> int:
        return self._output

    def read(self) -> bytes:
        """Return what it has printed since the last call; empty at the end."""
        return os.read(self._output, 1 << 16)

    def poll(self) -> int | None:
        """Return the container's exit code (negative: signal); None while it runs, as far as is known."""
        return self._code

    def joined(self) -> bool:
        """Return whether its agent has joined the rendezvous."""
        return bool(self.ranks) or self._joined

    def signal_ranks(self, signum: int, only: int | None = None) -> None:
        """Send a signal to every rank's program, or only to that of one rank."""
        pids = [str(pid) for rank, pid in self.ranks.items() if rank == only]
        if only is None or pids:
            self._ask(lambda client: self._signal(client, signum, pids))

    def terminate(self) -> None:
        """Ask the agent and its ranks to end."""

        def end(client: docker.DockerClient) -> None:
            self._signal(client, signal.SIGTERM, [])
            client.api.kill(self._container_id, signal=int(signal.SIGTERM))

        self._ask(end)

    def kill(self) -> None:
        """Kill everything on this node at once."""
        self._ask(lambda client: client.api.kill(self._container_id, signal=int(signal.SIGKILL)))

    def out_of_memory(self) -> str | None:
        """Return where memory ran out, if that is why something was killed: `node2 (limit 512 MiB)`."""
        with suppress(*Trouble):
            client = self.remote.engine()
            kills, limit = _memory(self._read_in_container(client))
            # Asked second: if it ended before its files could be read, this says how.
            inspected = client.api.inspect_container(self._container_id)
            if inspected["State"].get("OOMKilled") or kills:
                limit = inspected["HostConfig"].get("Memory") or limit
                return f"{self.plan.name} (limit {limit >> 20} MiB)" if limit else self.plan.name
        return None

    def release(self) -> None:
        """Stop following it; it keeps running."""
        self._let_go.set()

    def _ask(self, what: Callable[[docker.DockerClient], object]) -> None:
        """Ask the engine for something without waiting: a node out of reach must not hold up the others."""

        def ask() -> None:
            with suppress(*Trouble):  # it has ended or is out of reach: `_follow` and `_listen` notice
                what(self.remote.engine())

        threading.Thread(target=ask, daemon=True).start()

    def _signal(self, client: docker.DockerClient, signum: int, pids: list[str]) -> None:
        """Signal these processes in the container; if none are given, all that are a rank's parent.

        Those are found by their command line: if a job prints much, their own reports may be gone from the log.
        """
        with suppress(APIError):
            client.api.unpause(self._container_id)  # a frozen process would not receive it
        words = ["/bin/sh", "-c", _KILL, "sh", f"-{signum}", _RANK_COMMAND, *pids]
        created = client.api.exec_create(self._container_id, words)
        client.api.exec_start(created["Id"], detach=True)

    def _read_in_container(self, client: docker.DockerClient) -> str:
        script = "cd /sys/fs/cgroup && cat memory/memory.oom_control memory/memory.stat memory.events memory.max"
        try:
            created = client.api.exec_create(self._container_id, ["/bin/sh", "-c", script], stderr=False)
            return bytes(client.api.exec_start(created["Id"])).decode(errors="replace")
        except Trouble:  # it has ended, before or meanwhile
            return ""

    def _follow(self) -> None:
        """Pass on what it prints, over as many connections as that takes, until the container has ended."""
        cursor = LogCursor()
        with os.fdopen(self._writing, "wb", buffering=0) as pipe:
            while not self._let_go.is_set() and self._code is None:
                try:
                    code = (
                        self._ended()
                    )  # asked first: if it has ended, what follows is all of it, not only up to a break
                    for text in cursor.follow(self.remote.engine(), self._container_id):
                        self._heard_at = time.monotonic()
                        pipe.write(text)
                    self._code = code
                    if code is None:
                        self._let_go.wait(0.2)  # the stream broke off, or the container has not been started
                except BrokenPipeError:  # nobody is reading any more
                    return
                except NotFound:
                    self.gone = True
                    self._code = 0
                except Trouble:
                    self._let_go.wait(0.2)

    def _ended(self) -> int | None:
        """The exit code once the container has ended; None if only the stream broke off."""
        container = containers.parse(self.remote.engine().api.inspect_container(self._container_id))
        return None if container.exit_code is None else _as_signal(container.exit_code)

    def _listen(self) -> None:
        """Ask now and then whether the node still answers; connect again when it doesn't."""
        while not self._let_go.wait(_HEARTBEAT_S) and self._code is None:
            try:
                if self.joined():
                    self.remote.sftp().stat("/")  # the cheapest question: it starts nothing on the node
                else:
                    table = self.remote.run(SOCKETS, limit_s=_ANSWER_S).text
                    self._joined = has_socket(table, self._port)
                self._heard_at = time.monotonic()
                self.unreachable_since = None
            except Trouble:
                if self.unreachable_since is None:
                    self.unreachable_since = self._heard_at
                self.remote.close()  # frees threads that wait for an answer on this connection
                self._reconnect()

    def _reconnect(self) -> None:
        while not self._let_go.wait(_AGAIN_S) and self._code is None:
            with suppress(RingmasterError):
                opened, _ = open_all([self.remote.host], self._pins)
                if opened:
                    self.remote = opened[self.remote.host.name]  # by the inventory's name; the plan may use another
                    return


def _as_signal(code: int) -> int:
    """Turn 128 + n, a container's exit code after signal n, into -n, as for processes here."""
    return 128 - code if code in {128 + signal.SIGKILL, 128 + signal.SIGTERM, 128 + signal.SIGINT} else code


def _memory(text: str) -> tuple[int, int]:
    """(out-of-memory kills, limit in bytes) from the files of either cgroup version; 0 for none or unknown."""
    kills, limit = 0, 0
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == "oom_kill":
            kills = int(words[1])
        elif len(words) == 2 and words[0] == "hierarchical_memory_limit":
            limit = int(words[1])
        elif len(words) == 1 and words[0].isdigit():  # memory.max; a number, or "max"
            limit = int(words[0])
    return kills, limit if limit < 1 << 60 else 0  # version 1 writes "none" as a huge number
