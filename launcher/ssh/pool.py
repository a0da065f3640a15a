"""The connections to all nodes of a job."""

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import paramiko
from fabric import Config, Connection

from launcher.base import node_table
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.node_table import Row
from launcher.inventory.hosts import Host
from launcher.ssh.connection import CONNECT_S, KEEPALIVE_S, LostError, Remote, T, Trouble, short
from launcher.ssh.login import Login, logins
from launcher.ssh.reachability import State


@dataclass(frozen=True, kw_only=True)
class Reached:
    remotes: dict[str, Remote]
    missing: dict[str, Row]
    pins: Path


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
    local = [host.name for host in hosts if not host.ssh.over_ssh]
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
        connect_timeout=CONNECT_S,
        connect_kwargs={
            "key_filename": list(login.key_files),
            "allow_agent": login.use_agent,
            "pkey": None if login.use_agent else _from_agent(login),
            "look_for_keys": False,
            "banner_timeout": CONNECT_S,
            "auth_timeout": CONNECT_S,
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
    connection.transport.set_keepalive(KEEPALIVE_S)
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
    return _RefusedError(State.DOWN, short(error))


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
