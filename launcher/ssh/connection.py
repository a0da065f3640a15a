"""A connection to a node over SSH: for commands, files and the Docker engine's API."""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import docker
import paramiko
import requests
import urllib3
from docker.errors import DockerException

from launcher.base.errors import ExitCode, RingmasterError
from launcher.inventory.hosts import Host
from launcher.ssh import docker_transport, streams
from launcher.ssh.master import Master
from launcher.ssh.refusals import one_line

# We report broken connections ourselves, without paramiko's log lines and tracebacks.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False

_CHANNEL_S = 10
"""To open one more channel on an open connection."""
_ENGINE_S = 60
"""To get one answer from the engine; what streams has no such limit."""
_FILES_S = 10.0
"""To get one answer about files."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """How a command on a node ended."""

    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """What it printed."""
        return self.out.decode(errors="replace")

    @property
    def why(self) -> str:
        """The last line of its errors, else its exit code."""
        lines = self.err.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self.code}"


Trouble = (
    *(DockerException, RingmasterError, OSError, EOFError, paramiko.SSHException),
    *(requests.RequestException, urllib3.exceptions.HTTPError),
)
"""Everything that code on a connection may raise once the connection breaks."""


class LostError(RingmasterError):
    """The connection to a node broke."""

    def __init__(self, name: str, reason: object) -> None:
        why = str(reason) or type(reason).__name__
        super().__init__(f"{name}: the connection is lost ({why}); is it up?", exit_code=ExitCode.CLUSTER)


class Remote:
    """An open connection to one node."""

    def __init__(self, host: Host, transport: paramiko.Transport, master: Master) -> None:
        """Args:
        transport: opens channels over the connection that `master` holds.
        """
        self.host = host
        self.port = master.port
        """The port of its sshd, as the node itself sees it."""
        self._transport = transport
        self._master = master
        self._engine: docker.DockerClient | None = None
        self._files = threading.local()
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The node's name in the inventory."""
        return self.host.name

    @property
    def alive(self) -> bool:
        """Whether the connection is up, as far as this side knows."""
        return bool(self._transport.is_active())

    def run(
        self, words: Sequence[str], *, stdin: bytes | Iterable[bytes] = b"", limit_s: float | None = 60.0
    ) -> Finished:
        """Run a program; its words arrive as they are.

        Args:
            stdin: what it reads; an iterable is sent piece by piece.
            limit_s: how long nothing may be received or sent before the program counts as lost; None: for ever.

        Raises:
            LostError: the connection broke.
        """
        out: list[bytes] = []
        err: list[bytes] = []
        code = self._run(words, stdin, out.append, err.append, limit_s)
        return Finished(code=code, out=b"".join(out), err=b"".join(err))

    def stream(
        self, words: Sequence[str], *, stdin: bytes | Iterable[bytes] = b"", on_output: Callable[[bytes], None]
    ) -> int:
        """Run a program that takes long, hand on both of its outputs as they come, and return its exit code.

        Raises:
            LostError: the connection broke.
        """
        return self._run(words, stdin, on_output, on_output, None)

    def receive(
        self, words: Sequence[str], *, stdin: bytes = b"", on_output: Callable[[bytes], None], limit_s: float = 60.0
    ) -> Finished:
        """Run a program whose output is data: hand that on as it comes, and return how it ended.

        Args:
            on_output: what it raises ends the program.
            limit_s: how long nothing may be received or sent before the program counts as lost.

        Raises:
            LostError: the connection broke.
        """
        err: list[bytes] = []
        code = self._run(words, stdin, on_output, err.append, limit_s)
        return Finished(code=code, out=b"", err=b"".join(err))

    def engine(self) -> docker.DockerClient:
        """Return a client of the node's Docker engine.

        Raises:
            RingmasterError: there is none, or this user may not use it.
        """
        with self._lock:
            if self._engine is None:
                try:
                    self._engine = docker_transport.over(self._transport, timeout_s=_ENGINE_S)
                except (DockerException, OSError, paramiko.SSHException, EOFError) as error:
                    raise RingmasterError(
                        f"{self.name}: its Docker engine doesn't answer ({one_line(error)}); make provision installs "
                        "and starts it, and lets this user use it",
                        exit_code=ExitCode.NOT_STARTED,
                    ) from error
            return self._engine

    def sftp(self) -> paramiko.SFTPClient:
        """Return a client for the node's files: one for each thread, as a shared one loses answers.

        Raises:
            LostError: the connection broke.
        """
        if not self.alive:
            raise self._lost(EOFError("closed"))
        client: paramiko.SFTPClient | None = getattr(self._files, "client", None)
        if client is None:
            try:
                client = paramiko.SFTPClient.from_transport(self._transport)
                if client is None:
                    raise EOFError("closed")
            except (OSError, EOFError, paramiko.SSHException) as error:
                raise self._lost(error) from error
            client.get_channel().settimeout(_FILES_S)
            self._files.client = client
        return client

    def close(self) -> None:
        """End the connection, and with it everything that runs over it."""
        with suppress(Exception):
            self._transport.close()
        self._master.end()

    def _lost(self, error: Exception) -> LostError:
        """Return the error for a connection that broke; ssh's own words say more than what came of it here."""
        return LostError(self.name, ("" if self.alive else self._master.why()) or error)

    def _run(
        self,
        words: Sequence[str],
        stdin: bytes | Iterable[bytes],
        on_out: Callable[[bytes], None],
        on_err: Callable[[bytes], None],
        limit_s: float | None,
    ) -> int:
        try:
            channel = self._transport.open_session(timeout=_CHANNEL_S)
            with channel:
                return streams.run(channel, words, stdin, on_out=on_out, on_err=on_err, limit_s=limit_s)
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise self._lost(error) from error
