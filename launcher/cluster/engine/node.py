"""A node whose ranks run in a container: follow it, signal it and stop it over its SSH connection."""

import os
import re
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import docker
from docker.errors import APIError, NotFound

from launcher.cluster.engine import containers
from launcher.cluster.engine.log_cursor import LogCursor
from launcher.cluster.sockets import SOCKETS, has_socket
from launcher.job.plan import RANK_WORDS, NodePlan
from launcher.ssh.connection import Remote, Trouble
from launcher.ssh.pool import open_all

_HEARTBEAT_S = 2.0
_ANSWER_S = 8.0
"""A node that doesn't answer for this long is out of reach."""
_AGAIN_S, _LONGEST_AGAIN_S = 2.0, 8.0
"""How long to wait between two attempts to reach it again; longer and longer, below what firewalls take.

`ufw limit` takes five connections in 30 s, and counts also while it refuses: it would shut us out while we try.
"""
_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
"""How long to wait before its log is asked for again; longer and longer while nothing new comes."""
_TRIES = 3
"""So often a question is asked that gets no answer that makes sense."""
_CLOCK = ("date", "+%s.%N")
_CLOCK_BEATS = 30
"""After so many heartbeats the node's clock is read again: somebody may set it."""

_KILL = """
signal=$1 command=$2
shift 2
[ $# -gt 0 ] || set -- $(cd /proc && echo [0-9]*)
for pid in "$@"; do  # once a rank has ended, its number may be given to another process
    [ "$(tr '\\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)" != "$command " ] || kill "$signal" "$pid"
done
"""


class DockerNode:
    """A running node. As its ranks report, `ranks` fills with the process IDs, in the container, of their parents."""

    def __init__(self, plan: NodePlan, remote: Remote, container_id: str, port: int, pins: Path) -> None:
        self.plan = plan
        self.ranks: dict[int, int] = {}
        self.unreachable_since: float | None = None
        self.lost: str | None = None
        """Why the node counts as lost; `DockerRuntime` sets it after asking another node."""
        self.incomplete: str | None = None
        """Why the engine can't give its whole log; the user was told."""
        self.gone = False
        """Whether somebody removed its container before it was seen to end."""
        self.clock_s = 0.0
        """Seconds that the node's clock is ahead of ours; 0 until it was read."""
        self.news: deque[str] = deque()
        """What the user should know of it."""
        self.remote = remote
        self._container_id = container_id
        self._port = port
        self._pins = pins
        self._code: int | None = None
        self._joined = False
        self._clock_known = False
        self._lines = 0
        self._heard_at = time.monotonic()
        self._let_go = threading.Event()
        self._strange = False
        """Whether the user was told that it can't be asked how it is."""
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
            try:
                what(self.remote.engine())
            except Trouble:  # it has ended or is out of reach: `_follow` and `_listen` notice
                pass
            except Exception as error:
                self._tell_strange(error)

        threading.Thread(target=ask, daemon=True).start()

    def _signal(self, client: docker.DockerClient, signum: int, pids: list[str]) -> None:
        """Signal these processes in the container; if none are given, all that are a rank's parent.

        Those are found by their command line: if a job prints much, their own reports may be gone from the log.
        """
        with suppress(APIError):
            client.api.unpause(self._container_id)  # a frozen process would not receive it
        rank = " ".join(self.plan.argv[-RANK_WORDS:])
        words = ["/bin/sh", "-c", _KILL, "sh", f"-{signum}", rank, *pids]
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
        with os.fdopen(self._writing, "wb", buffering=0) as pipe:
            try:
                self._learn_clock()
                self._pass_on(pipe)
            except _NobodyReadsError:
                return
            except Exception as error:  # a thread's last word that nobody else would hear
                self.lost = self.lost or f"it can't be followed any more ({containers.reason(error)})"

    def _pass_on(self, pipe: IO[bytes]) -> None:
        cursor, pause, refused, strange = LogCursor(), _PAUSE_S, 0, 0
        while self._code is None and self.lost is None:
            lines, code = self._lines, None
            try:
                # Asked first: if it has ended, what follows is all of it, not only up to a break.
                code = self._ended()
                self._read_log(cursor, pipe, ended=code is not None)
                self._code, refused, strange = code, 0, 0
            except NotFound:
                self.gone = code is None  # else its end was seen before
                self._code = code or 0
            except _UnreadableError:
                refused += 1
                if refused >= _TRIES:  # its end is known without its log
                    self._code = code
            except Trouble:  # out of reach: `_listen` notices
                pause = 0.0
            except Exception as error:
                strange += 1
                if strange >= _TRIES:
                    self.lost = f"its engine's answers make no sense ({containers.reason(error)})"
            pause = _PAUSE_S if self._lines > lines else min(max(2 * pause, _PAUSE_S), _LONGEST_PAUSE_S)
            if self._code is None and self._let_go.wait(pause):
                return

    def _read_log(self, cursor: LogCursor, pipe: IO[bytes], *, ended: bool) -> None:
        """Pass on what is new in its log.

        Raises:
            _UnreadableError: the engine can't give the log; the user was told.
            Trouble: the connection broke.
        """
        try:
            for text in self._printed(cursor, ended=ended):
                self._heard_at = time.monotonic()
                self._lines += 1
                try:
                    pipe.write(text)
                except BrokenPipeError as error:
                    raise _NobodyReadsError from error
        except (NotFound, _NobodyReadsError):
            raise
        except Exception as error:
            if isinstance(error, Trouble) and not isinstance(error, APIError):
                raise
            self._tell_incomplete(containers.reason(error))
            raise _UnreadableError from error
        if cursor.torn:
            self._tell_incomplete("it is torn")

    def _printed(self, cursor: LogCursor, *, ended: bool) -> Iterator[bytes]:
        client = self.remote.engine()
        yield from cursor.follow(client, self._container_id)
        if ended:
            yield from cursor.rest(client, self._container_id)

    def _tell_incomplete(self, why: str) -> None:
        if self.incomplete is None:
            self.incomplete = why
            what = f"the engine can't give its whole log ({why}): lines are missing here"
            self.news.append(f"{self.plan.name}: {what}; the job goes on")

    def _ended(self) -> int | None:
        """The exit code once the container has ended; None if only the stream broke off."""
        container = containers.parse(self.remote.engine().api.inspect_container(self._container_id))
        return None if container.exit_code is None else _as_signal(container.exit_code)

    def _listen(self) -> None:
        """Ask now and then whether the node still answers; connect again when it doesn't."""
        beats = 1  # `_learn_clock` reads the clock at the start
        while self._code is None and not self._let_go.is_set():
            try:
                self._beat(beats)
                self._heard_at = time.monotonic()
                self.unreachable_since = None
            except Trouble:
                if self.unreachable_since is None:
                    self.unreachable_since = self._heard_at
                self.remote.close()  # frees threads that wait for an answer on this connection
                self._reconnect()
            except Exception as error:  # it answered, if not in a way that we know
                self._tell_strange(error)
            beats += 1
            self._let_go.wait(_HEARTBEAT_S)

    def _beat(self, number: int) -> None:
        if number % _CLOCK_BEATS == 0 or not self._clock_known:
            self._read_clock()
        elif self.joined():
            self.remote.sftp().stat("/")  # the cheapest question: it starts nothing on the node
        else:
            table = self.remote.run(SOCKETS, limit_s=_ANSWER_S).text
            self._joined = has_socket(table, self._port)

    def _learn_clock(self) -> None:
        """Read the clock before anything else: what was printed, hours ago maybe, tells its times by it."""
        for _ in range(_TRIES):
            with suppress(Exception):  # `_listen` tells of it, and reads the clock when it can
                self._read_clock()
                return
            if self._let_go.wait(_PAUSE_S):
                return

    def _read_clock(self) -> None:
        asked_at = time.time()
        answer = self.remote.run(_CLOCK, limit_s=_ANSWER_S).text
        self.clock_s = clock_ahead(answer, asked_at, time.time(), otherwise=self.clock_s)
        self._clock_known = True

    def _reconnect(self) -> None:
        pause_s = _AGAIN_S
        while not self._let_go.wait(pause_s) and self._code is None:
            pause_s = min(2 * pause_s, _LONGEST_AGAIN_S)
            try:
                opened, _ = open_all([self.remote.host], self._pins)
                if opened:
                    self.remote = opened[self.remote.host.name]  # by the inventory's name; the plan may use another
                    return
            except Exception as error:  # such as no process or descriptor left here: another time it may go
                self._tell_strange(error)

    def _tell_strange(self, error: Exception) -> None:
        """Tell once of an error that isn't foreseen, in a thread whose errors nobody hears."""
        if not self._strange and not isinstance(error, Trouble):
            self._strange = True
            self.news.append(f"{self.plan.name}: can't be asked how it is ({containers.reason(error)}); trying again")


class _UnreadableError(Exception):
    """The engine can't give a container's log."""


class _NobodyReadsError(Exception):
    """Whoever read what a node prints has closed it."""


def clock_ahead(answer: str, asked_at: float, heard_at: float, *, otherwise: float) -> float:
    """Return how many seconds a node's clock is ahead, from what its `date` printed between two moments of our clock.

    Args:
        otherwise: returned where `date` doesn't know its clock's time in this form, or not with its fractions.
    """
    found = re.fullmatch(r"(\d+\.\d+)\s*", answer)
    return float(found[1]) - (asked_at + heard_at) / 2 if found else otherwise


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
