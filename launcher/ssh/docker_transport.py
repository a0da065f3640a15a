"""The Docker SDK over an SSH connection that is already open, instead of one that the SDK opens."""

import time
from typing import Any

import docker
import paramiko
import requests.adapters
from docker.transport import SSHHTTPAdapter
from docker.transport.sshconn import RecentlyUsedContainer, SSHConnection, SSHConnectionPool

from launcher.base.paths import SYSTEMS_ENGINE
from launcher.ssh import program

_URL = "http+docker://ssh"
"""The address from which the SDK knows that its streams are SSH channels."""
_KEPT = 2
"""Channels that stay open for the next request."""
_DIAL = ("docker", "-H", SYSTEMS_ENGINE, "system", "dial-stdio")
_FRESH_S = 60.0
"""A channel that was unused for longer is not used again: the engine closes its end after five minutes."""
_UNUSED = "http://127.0.0.1:1"
"""The SDK wants an address; ours replaces it before the first request."""


class _Connection(SSHConnection):
    """One channel to the engine, in the SDK's hands."""

    ssh_transport: Any

    def connect(self) -> None:
        """Reach the engine as the SDK would, except that no login shell sees the command."""
        self.sock = self.ssh_transport.open_session()
        self.sock.settimeout(self.timeout)
        program.start(self.sock, _DIAL)


class _Pool(SSHConnectionPool):
    """The SDK's own pool, of such connections."""

    def _new_conn(self) -> Any:
        timeout: Any = self.timeout
        return _Connection(self.ssh_transport, timeout, self.ssh_host)


class _OverTransport(SSHHTTPAdapter):
    """The SDK's own SSH adapter, except that the connection is given: the SDK would open one itself."""

    def __init__(self, transport: paramiko.Transport, timeout: int) -> None:
        self.ssh_client = None
        self.ssh_host = ""
        self.timeout = timeout
        self.max_pool_size = _KEPT
        self._transport = transport
        self._pool = self._new_pool()
        pools: Any = RecentlyUsedContainer(1)
        self.pools = pools
        self._used_at = time.monotonic()
        requests.adapters.HTTPAdapter.__init__(self)

    def get_connection(self, _url: Any, proxies: Any = None) -> Any:  # noqa: ARG002
        """Use one pool for all addresses: the SDK's pool for each of them soon uses up sshd's MaxSessions (10)."""
        return self._pool

    def _new_pool(self) -> Any:
        pool: Any = _Pool(timeout=self.timeout, maxsize=_KEPT)
        pool.ssh_transport = self._transport
        return pool

    def send(self, *arguments: Any, **options: Any) -> Any:
        """Send a request, over a new channel where the others have been idle for long."""
        if time.monotonic() - self._used_at > _FRESH_S:
            self._pool.close()  # those in use stay open
            self._pool = self._new_pool()
        try:
            return super().send(*arguments, **options)
        finally:
            self._used_at = time.monotonic()

    def close(self) -> None:
        self._pool.close()
        requests.adapters.HTTPAdapter.close(self)


def over(transport: paramiko.Transport, *, timeout_s: int) -> docker.DockerClient:
    """Return a client of the engine at the other end of `transport`, which is asked only for its API version yet.

    Raises:
        docker.errors.DockerException: no engine answers there.
    """
    adapter = _OverTransport(transport, timeout_s)
    engine = docker.DockerClient(base_url=_UNUSED, version="1.40", timeout=timeout_s)
    api: Any = engine.api
    api.mount(_URL, adapter)
    api.base_url = _URL
    api._custom_adapter = adapter
    # Engines of 2025 and later no longer speak the version of the oldest ones, so each is asked for its own.
    api._version = api._retrieve_server_version()
    return engine
