"""Opens one connection to a node: OpenSSH logs in, and channels are opened over its connection."""

import os
import re
import shutil
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import paramiko

from launcher.base.password_pipe import PasswordPipe
from launcher.inventory.hosts import Host
from launcher.ssh import known_hosts, mux, refusals
from launcher.ssh.connection import Remote
from launcher.ssh.known_hosts import pinning_options
from launcher.ssh.master import Master, Patience
from launcher.ssh.reachability import LIMIT_S, Answer, judge
from launcher.ssh.refusals import Refusal, RefusedError, State

_PATIENCE = Patience()
_LONGEST_PATH = 80
"""A socket's path has 107 bytes at most, of which ssh takes 17 for itself while it makes the socket."""


def dial(host: Host, pins: Path, over: threading.Event | None = None) -> Remote:
    """Open a connection to `host`; a host key that neither ssh nor `pins` knows is refused.

    Args:
        over: set when nobody waits for the connection any longer.

    Raises:
        RefusedError: the node is not reached, doesn't let us in, or shows a key that is not its own.
    """
    options = host.ssh.options(pinning_options(pins))
    folder = _private_folder()
    pipe: PasswordPipe | None = None
    try:
        if host.ssh.password:
            pipe = PasswordPipe(folder / "p", os.fsencode(host.ssh.password))
        master = Master(host.address, options, folder / "s", _PATIENCE, pipe.path if pipe else None)
        try:
            end = master.wait_ready(LIMIT_S, over or threading.Event())
            if end is not None:
                refusal = _refusal(host, options, pins, judge(end))
                raise RefusedError(_of_password(refusal, host, pipe))
            if master.preamble:  # it would stand before the output of every program, and break the transfer of files
                raise RefusedError(refusals.talkative(master.preamble))
            transport = mux.connect(folder / "s", host.name)
        except (OSError, EOFError, paramiko.SSHException) as error:
            master.end()
            raise RefusedError(Refusal(state=State.DOWN, reason=refusals.one_line(error))) from error
        except BaseException:
            master.end()
            raise
    finally:
        if pipe is not None:
            pipe.take_back()
        shutil.rmtree(folder, ignore_errors=True)  # the way to the connection: nobody else needs to find it
    return Remote(host, transport, master)


def _of_password(refusal: Refusal, host: Host, pipe: PasswordPipe | None) -> Refusal:
    """Return the refusal with what became of the node's password, where there is one and no key was accepted."""
    if pipe is not None:
        return refusals.wrong_password(refusal) if pipe.was_read else refusals.unasked_password(refusal)
    return refusals.locked_password(refusal) if host.ssh.has_password and not host.ssh.password else refusal


def _private_folder() -> Path:
    """Return a new folder that only this user can enter, with a path that a socket's address can hold."""
    chosen = Path(tempfile.gettempdir())
    if len(bytes(chosen)) >= _LONGEST_PATH - len("/ringmaster-12345678/s"):
        chosen = Path("/tmp")  # noqa: S108 - mkdtemp makes a folder of our own there
    return Path(tempfile.mkdtemp(prefix="ringmaster-", dir=chosen))


def _refusal(host: Host, options: Sequence[str], pins: Path, answer: Answer) -> Refusal:
    """Return why the node can't be used; where its host key is why, with what is pinned."""
    said = Refusal(state=answer.state, reason=answer.reason)
    if answer.state not in {State.UNKNOWN, State.CHANGED}:
        return said
    route = known_hosts.routes([host], {host.name: options}, pins)[host.name]
    named = re.search(r"ost key (?:is known )?for (\S+) (?:and you have|has changed)", answer.stderr)
    if named is None or named[1] != route.name:
        return said  # the key of a jump host, or one that was revoked
    if answer.state is State.CHANGED:
        keys = known_hosts.trusted(route)
        shown = re.search(r"SHA256:[\w+/]+", answer.stderr)
        return refusals.changed(shown[0] if shown else "another", ", ".join(key.fingerprint for key in keys))
    return Refusal(state=State.UNKNOWN, reason=f"{refusals.KEY_UNKNOWN}; {refusals.PINNING}")
