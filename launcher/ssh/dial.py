"""Opens one connection to a node, with Fabric, as OpenSSH would open it."""

from contextlib import suppress
from pathlib import Path

import paramiko
from fabric import Config, Connection
from paramiko.ssh_exception import NoValidConnectionsError

from launcher.inventory.hosts import Host
from launcher.ssh import refusals
from launcher.ssh.connection import Remote
from launcher.ssh.login import Login
from launcher.ssh.reachability import CONNECT_S
from launcher.ssh.refusals import Refusal, RefusedError, State
from launcher.ssh.silence import Patience, SilenceWatch

_PATIENCE = Patience()


def dial(host: Host, login: Login) -> Remote:
    """Open a connection to `host`; a host key that `login` doesn't trust is refused.

    Raises:
        RefusedError: the node is not reached, doesn't let us in, or shows a key that is not its own.
    """
    address, port = login.route.address, login.route.port
    if not login.keys:
        reason = f"{refusals.KEY_UNKNOWN}; {refusals.PINNING}"
        raise RefusedError(Refusal(state=State.UNKNOWN, reason=reason))
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
        raise RefusedError(_refusal(error, login)) from error
    return Remote(host, connection, port, SilenceWatch(connection.transport, _PATIENCE))


def _from_agent(login: Login) -> paramiko.PKey | None:
    """Return the agent's first key that is in one of the named files: all that IdentitiesOnly allows of an agent."""
    wanted = {blob for path in login.key_files if (blob := _public_blob(Path(f"{path}.pub")))}
    try:
        return next((key for key in paramiko.Agent().get_keys() if key.get_base64() in wanted), None)
    except (OSError, paramiko.SSHException):
        return None


def _public_blob(path: Path) -> str:
    try:
        return [*path.read_text().split(), "", ""][1]
    except (OSError, ValueError):
        return ""


def _refusal(error: Exception, login: Login) -> Refusal:
    if isinstance(error, paramiko.BadHostKeyException):
        return refusals.changed(error.key.fingerprint, ", ".join(key.fingerprint for key in login.keys))
    if isinstance(error, paramiko.AuthenticationException | paramiko.PasswordRequiredException):
        return refusals.denied(login.user)
    if isinstance(error, TimeoutError):
        return Refusal(state=State.DOWN, reason=refusals.TIMED_OUT)
    # What paramiko sums up as "Unable to connect" has the reason for each address of the host within.
    each = error.errors.values() if isinstance(error, NoValidConnectionsError) else (error,)
    known = refusals.explain("\n".join(str(one) for one in each))
    return known or Refusal(state=State.DOWN, reason=refusals.one_line(error))
