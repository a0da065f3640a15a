"""Connections to nodes: one SSH connection each, opened by Fabric, for commands, files and the engine's API."""

import logging
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import docker
import paramiko
import requests
import urllib3
from docker.errors import DockerException
from fabric import Connection

from launcher.base.errors import ExitCode, RingmasterError
from launcher.inventory.hosts import Host
from launcher.ssh import docker_transport

T = TypeVar("T")
# What it has to say of a broken connection, tracebacks among it, we say ourselves.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False

CONNECT_S = 10
_ENGINE_S = 60
"""For one answer of the engine; what streams has no such limit."""
_TICK_S = 1.0
_FILES_S = 10.0
"""For one answer about files."""
KEEPALIVE_S = 15
"""Firewalls and NAT forget connections on which nothing is said for minutes."""
_PIECE = 1 << 15


@dataclass(frozen=True, kw_only=True)
class Finished:
    """How a command on a node ended."""

    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        return self.out.decode(errors="replace")

    @property
    def why(self) -> str:
        """The last line of its errors."""
        lines = self.err.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self.code}"


Trouble = (
    *(DockerException, RingmasterError, OSError, EOFError, paramiko.SSHException),
    *(requests.RequestException, urllib3.exceptions.HTTPError),
)
"""What a broken connection may show itself as."""


class LostError(RingmasterError):
    """The connection to a node broke."""

    def __init__(self, name: str, reason: object) -> None:
        said = str(reason) or type(reason).__name__
        super().__init__(f"{name}: the connection is lost ({said}); is it up?", exit_code=ExitCode.CLUSTER)


class Remote:
    """An open connection to one node."""

    def __init__(self, host: Host, connection: Connection, port: int) -> None:
        self.host = host
        self.port = port
        """Where its sshd listens."""
        self._connection = connection
        self._engine: docker.DockerClient | None = None
        self._files = threading.local()
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def alive(self) -> bool:
        """Whether the connection stands, as far as is known."""
        transport = self._connection.client.get_transport()
        return transport is not None and transport.is_active()

    def run(
        self, words: Sequence[str], *, stdin: bytes | Iterable[bytes] = b"", limit_s: float | None = 60.0
    ) -> Finished:
        """Run a program; its words arrive as they are.

        Args:
            stdin: what it reads; an iterable is sent piece by piece.
            limit_s: it counts as lost if for so long nothing is heard of it, nor sent to it; None: for ever.

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
        """Run a program that takes long: what it prints is handed on as it comes, both streams; return its exit code.

        Raises:
            LostError: the connection broke.
        """
        return self._run(words, stdin, on_output, on_output, None)

    def engine(self) -> docker.DockerClient:
        """The node's Docker engine.

        Raises:
            RingmasterError: there is none, or this user may not use it.
        """
        with self._lock:
            if self._engine is None:
                try:
                    self._engine = docker_transport.over(self._connection.client, timeout_s=_ENGINE_S)
                except (DockerException, OSError, paramiko.SSHException, EOFError) as error:
                    raise RingmasterError(
                        f"{self.name}: its Docker engine doesn't answer ({short(error)}); make provision installs "
                        "and starts it, and lets this user use it",
                        exit_code=ExitCode.NOT_STARTED,
                    ) from error
            return self._engine

    def sftp(self) -> paramiko.SFTPClient:
        """The node's files; a client of its own for each thread, as one loses answers when two threads ask.

        Raises:
            LostError: the connection broke.
        """
        if not self.alive:
            raise LostError(self.name, "closed")
        client: paramiko.SFTPClient | None = getattr(self._files, "client", None)
        if client is None:
            try:
                client = self._connection.client.open_sftp()
            except (OSError, EOFError, paramiko.SSHException) as error:
                raise LostError(self.name, error) from error
            client.get_channel().settimeout(_FILES_S)
            self._files.client = client
        return client

    def close(self) -> None:
        """End the connection, and with it whatever runs over it."""
        with suppress(Exception):
            self._connection.client.close()

    def _run(
        self,
        words: Sequence[str],
        stdin: bytes | Iterable[bytes],
        on_out: Callable[[bytes], None],
        on_err: Callable[[bytes], None],
        limit_s: float | None,
    ) -> int:
        try:
            transport = self._connection.client.get_transport()
            if transport is None:
                raise EOFError("closed")
            channel = transport.open_session(timeout=CONNECT_S)
            with channel:
                channel.settimeout(_TICK_S)
                channel.exec_command(shlex.join(words))
                feeder = _Feeder(channel, stdin)
                errors = threading.Thread(target=_drain, args=(channel, on_err, feeder), daemon=True)
                errors.start()
                while data := _heard(channel.recv, feeder, limit_s):
                    on_out(data)
                errors.join(limit_s)
                if feeder.error is not None:
                    raise feeder.error
                if not channel.status_event.wait(limit_s) or channel.exit_status < 0:
                    raise EOFError("it ended without an exit code")
                return int(channel.exit_status)
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise LostError(self.name, error) from error


class _Feeder:
    """Writes what a program reads, in a thread; one that ends before it has read all says by its exit code why."""

    def __init__(self, channel: paramiko.Channel, stdin: bytes | Iterable[bytes]) -> None:
        self.active_at = time.monotonic()
        """When something last went either way."""
        self.error: RingmasterError | None = None
        """Why what was to be sent could not be read here."""
        self._channel = channel
        threading.Thread(target=self._feed, args=(stdin,), daemon=True).start()

    def _feed(self, stdin: bytes | Iterable[bytes]) -> None:
        pieces = iter((stdin,) if isinstance(stdin, bytes) else stdin)
        while True:
            try:
                piece = next(pieces, None)
            except Exception as error:  # of ours: a file that can't be read
                self.error = error if isinstance(error, RingmasterError) else RingmasterError(f"can't be sent: {error}")
                self._channel.close()
                return
            try:
                if piece is None:
                    self._channel.shutdown_write()
                    return
                self._send(piece)
            except (OSError, EOFError):
                return

    def _send(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[self._channel.send(left[:_PIECE]) :]
                self.active_at = time.monotonic()
            except TimeoutError:  # the line is full; who listens judges whether for too long
                continue


def _heard(receive: Callable[[int], bytes], feeder: _Feeder, limit_s: float | None) -> bytes:
    """What comes next; empty at the end."""
    while True:
        try:
            data = receive(_PIECE)
            feeder.active_at = time.monotonic()
            return data
        except TimeoutError:
            if limit_s is not None and time.monotonic() - feeder.active_at > limit_s:
                raise


def _drain(channel: paramiko.Channel, on_data: Callable[[bytes], None], feeder: _Feeder) -> None:
    with suppress(OSError, EOFError):
        while data := _heard(channel.recv_stderr, feeder, None):
            on_data(data)


def short(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
