"""Connections to nodes: one SSH connection each, opened by Fabric, for commands, files and the engine's API."""

import logging
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import docker
import paramiko
import requests
import urllib3
from docker.errors import DockerException
from fabric import Config, Connection

from launcher import node_table, remote_engine
from launcher.errors import ExitCode, RingmasterError
from launcher.inventory import Host
from launcher.node_table import Row
from launcher.remote_login import Login, logins
from launcher.ssh import State

T = TypeVar("T")
# What it has to say of a broken connection, tracebacks among it, we say ourselves.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False

_CONNECT_S = 10
_ENGINE_S = 60
"""For one answer of the engine; what streams has no such limit."""
_TICK_S = 1.0
_FILES_S = 10.0
"""For one answer about files."""
_KEEPALIVE_S = 15
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
                    self._engine = remote_engine.over(self._connection.client, timeout_s=_ENGINE_S)
                except (DockerException, OSError, paramiko.SSHException, EOFError) as error:
                    raise RingmasterError(
                        f"{self.name}: its Docker engine doesn't answer ({_short(error)}); make provision installs "
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
            channel = transport.open_session(timeout=_CONNECT_S)
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


@contextmanager
def connected(hosts: Sequence[Host], pins: Path) -> Iterator[dict[str, Remote]]:
    """Connections to all `hosts`, in their order, closed at the end.

    Args:
        pins: the inventory's known_hosts, read besides those that OpenSSH reads.

    Raises:
        RingmasterError: a node is not reached, refuses us or shows a host key that is not its own. What stands
            against each was shown.
    """
    opened, failed = open_all(hosts, pins)
    try:
        if failed:
            refuse(hosts, failed)
        yield opened
    finally:
        for remote in opened.values():
            remote.close()


def open_all(hosts: Sequence[Host], pins: Path) -> tuple[dict[str, Remote], dict[str, Row]]:
    """Connect to all `hosts` at once; return the connections, and for each node that failed its line of the table."""
    local = [host.name for host in hosts if not host.connection.over_ssh]
    if local:
        raise RingmasterError(f"{', '.join(local)}: containers are started over SSH; take ansible_connection away")
    found = logins(hosts, pins)
    opened: dict[str, Remote] = {}
    failed: dict[str, Row] = {}
    with ThreadPoolExecutor(max_workers=min(32, len(hosts))) as pool:
        tries = {host.name: pool.submit(_open, host, found[host.name]) for host in hosts}
    for host in hosts:
        try:
            opened[host.name] = tries[host.name].result()
        except _RefusedError as error:
            failed[host.name] = Row(name=host.name, address=host.address, state=error.state, why=str(error))
    return opened, failed


def revived(remotes: Mapping[str, Remote], pins: Path) -> dict[str, Remote]:
    """The same connections, those that broke or were closed opened again; nodes that can't be reached are left out."""
    dead = [remote.host for remote in remotes.values() if not remote.alive]
    again = open_all(dead, pins)[0] if dead else {}
    by_host = {host.name: opened for host in dead if (opened := again.get(host.name))}
    found = {name: remote if remote.alive else by_host.get(remote.name) for name, remote in remotes.items()}
    return {name: remote for name, remote in found.items() if remote is not None}


def refuse(hosts: Sequence[Host], failed: Mapping[str, Row]) -> None:
    """Show the table of all nodes, and end."""
    fine = {host.name: Row(name=host.name, address=host.address, state=State.OK) for host in hosts}
    node_table.show([{**fine, **failed}[host.name] for host in hosts])
    raise RingmasterError(
        f"{', '.join(failed)}: not reached (see the table); nothing was started", exit_code=ExitCode.NOT_STARTED
    )


class _RefusedError(Exception):
    def __init__(self, state: State, why: str) -> None:
        super().__init__(why)
        self.state = state


def _open(host: Host, login: Login) -> Remote:
    address, port = login.route.address, login.route.port
    if not login.keys:
        raise _RefusedError(State.UNKNOWN, "its host key is not known; make provision shows it, asks, and pins it")
    connection = Connection(
        address,
        user=login.user,
        port=port,
        config=Config(lazy=True),  # nothing of ~/.ssh/config: OpenSSH has read it already
        gateway=login.proxy or None,
        connect_timeout=_CONNECT_S,
        connect_kwargs={
            "key_filename": list(login.key_files),
            "allow_agent": login.use_agent,
            "pkey": None if login.use_agent else _from_agent(login),
            "look_for_keys": False,
            "banner_timeout": _CONNECT_S,
            "auth_timeout": _CONNECT_S,
        },
    )
    client = connection.client
    client.set_missing_host_key_policy(paramiko.RejectPolicy())  # Fabric's own policy accepts any key
    name = address if port == 22 else f"[{address}]:{port}"
    for key in login.keys:
        with suppress(Exception):  # of a kind that paramiko doesn't know
            client.get_host_keys().add(name, key.kind, paramiko.PKey.from_type_string(key.kind, key.bytes))
    try:
        connection.open()
    except Exception as error:
        raise _refused(error, login) from error
    connection.transport.set_keepalive(_KEEPALIVE_S)
    return Remote(host, connection, port)


def _from_agent(login: Login) -> paramiko.PKey | None:
    """Of the agent's keys the first that is one of the named files': what IdentitiesOnly allows of an agent."""
    wanted = {blob for path in login.key_files if (blob := _public(Path(f"{path}.pub")))}
    try:
        return next((key for key in paramiko.Agent().get_keys() if key.get_base64() in wanted), None)
    except (OSError, paramiko.SSHException):
        return None


def _public(path: Path) -> str:
    try:
        return [*path.read_text().split(), "", ""][1]
    except (OSError, ValueError):
        return ""


def _refused(error: Exception, login: Login) -> _RefusedError:
    if isinstance(error, paramiko.BadHostKeyException):
        shown = error.key.fingerprint
        pinned = ", ".join(key.fingerprint for key in login.keys)
        return _RefusedError(
            State.CHANGED,
            f"it shows {shown}, pinned is {pinned}: installed anew, or someone stands between; make verify explains",
        )
    if isinstance(error, paramiko.AuthenticationException | paramiko.PasswordRequiredException):
        why = f"no key was accepted for user {login.user}; see ansible_user, and ssh-add for a key with a passphrase"
        return _RefusedError(State.DENIED, why)
    if "not found in known_hosts" in str(error):
        return _RefusedError(State.UNKNOWN, "it shows a host key of a kind that is not pinned; make provision explains")
    if isinstance(error, TimeoutError | socket.timeout):
        return _RefusedError(State.DOWN, "timed out; is it switched on, and does its firewall let SSH pass?")
    return _RefusedError(State.DOWN, _short(error))


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def on_all(remotes: Mapping[str, Remote], work: Callable[[Remote], T]) -> dict[str, T]:
    """Do `work` for all nodes at once; return what it gives, by node.

    Raises:
        RingmasterError: it failed for at least one; what stands against each is in the message, line by line.
    """
    pool = ThreadPoolExecutor(max_workers=max(1, len(remotes)))
    futures: dict[str, Future[T]] = {name: pool.submit(work, remote) for name, remote in remotes.items()}
    try:
        while not all(future.done() for future in futures.values()):
            time.sleep(0.005)  # and not `wait`, which would keep Ctrl-C out
    except BaseException:
        for remote in remotes.values():  # ends what they wait for
            remote.close()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    errors = [(name, error) for name, future in futures.items() if (error := future.exception()) is not None]
    for _, error in errors:
        if not isinstance(error, Trouble):
            raise error
    told = [error if isinstance(error, RingmasterError) else LostError(name, error) for name, error in errors]
    if told:
        told[0].args = ("\n".join(str(error) for error in told),)  # the first's kind and exit code, everybody's words
        raise told[0]
    return {name: future.result() for name, future in futures.items()}
