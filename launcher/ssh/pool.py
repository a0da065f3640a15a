"""The connections to all nodes of a job."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from launcher.base import node_table
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.node_table import Row
from launcher.inventory.hosts import Host
from launcher.ssh.admission import admit
from launcher.ssh.connection import LostError, Remote, Trouble
from launcher.ssh.dial import dial
from launcher.ssh.refusals import PASSING, Refusal, RefusedError, State

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Reached:
    """The nodes of an inventory after the attempt to connect to all of them."""

    remotes: dict[str, Remote]
    """The connections, by node."""
    missing: dict[str, Row]
    """For each node that was not reached, its line of the table."""
    pins: Path
    """The inventory's known_hosts."""


@contextmanager
def connected(hosts: Sequence[Host], pins: Path) -> Iterator[dict[str, Remote]]:
    """Give connections to all `hosts`, in their order, and close them at the end.

    Args:
        pins: the inventory's known_hosts, read besides those that OpenSSH reads.

    Raises:
        RingmasterError: a node is not reached, refuses us, or shows a host key that is not its own. The table with
            each node's reason was shown.
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
    """Connect to all `hosts`; return the connections, and for each node that failed its line of the table.

    Raises:
        RingmasterError: a host is not reached over SSH at all, or ssh can't make sense of its options.
    """
    local = [host.name for host in hosts if not host.ssh.over_ssh]
    if local:
        raise RingmasterError(f"{', '.join(local)}: containers are started over SSH; remove ansible_connection")
    begun: list[Remote] = []

    def attempt(host: Host, over: threading.Event) -> Remote | Refusal:
        try:
            remote = dial(host, pins, over)
        except RefusedError as error:
            return error.refusal
        begun.append(remote)
        return remote

    try:
        results = admit(hosts, attempt, lambda found: isinstance(found, Refusal) and found.reason in PASSING)
    except BaseException:
        for remote in begun:
            remote.close()
        raise
    opened = {host.name: found for host, found in zip(hosts, results, strict=True) if isinstance(found, Remote)}
    failed = {
        host.name: Row(name=host.name, address=host.address, state=found.state, why=found.reason)
        for host, found in zip(hosts, results, strict=True)
        if isinstance(found, Refusal)
    }
    return opened, failed


def revived(remotes: Mapping[str, Remote], pins: Path) -> dict[str, Remote]:
    """Return the same connections, with new ones for those that broke or were closed.

    Nodes that can't be reached are left out.
    """
    dead = [remote.host for remote in remotes.values() if not remote.alive]
    reopened = open_all(dead, pins)[0] if dead else {}
    current = {name: remote if remote.alive else reopened.get(remote.name) for name, remote in remotes.items()}
    return {name: remote for name, remote in current.items() if remote is not None}


def refuse(hosts: Sequence[Host], failed: Mapping[str, Row]) -> None:
    """Show the table of all nodes, and end the command.

    Raises:
        RingmasterError: always; it names the nodes that failed.
    """
    fine = {host.name: Row(name=host.name, address=host.address, state=State.OK) for host in hosts}
    node_table.show([{**fine, **failed}[host.name] for host in hosts])
    raise RingmasterError(
        f"{', '.join(failed)}: not reached (see the table); nothing was started", exit_code=ExitCode.NOT_STARTED
    )


def on_all(remotes: Mapping[str, Remote], work: Callable[[Remote], T]) -> dict[str, T]:
    """Do `work` for all nodes at once; return its results, by node.

    Raises:
        RingmasterError: it failed for at least one node. The message has a line for each that failed; kind and exit
            code are those of the first.
    """
    pool = ThreadPoolExecutor(max_workers=max(1, len(remotes)))
    futures: dict[str, Future[T]] = {name: pool.submit(work, remote) for name, remote in remotes.items()}
    try:
        while not all(future.done() for future in futures.values()):
            time.sleep(0.005)  # not `wait`, which would keep Ctrl-C out
    except BaseException:
        for remote in remotes.values():  # which ends what the threads wait for
            remote.close()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    errors = [(name, error) for name, future in futures.items() if (error := future.exception()) is not None]
    for _, error in errors:
        if not isinstance(error, Trouble):
            raise error
    failures = [error if isinstance(error, RingmasterError) else LostError(name, error) for name, error in errors]
    if failures:
        failures[0].args = ("\n".join(str(failure) for failure in failures),)
        raise failures[0]
    return {name: future.result() for name, future in futures.items()}
