"""The Docker SDK over an SSH connection that is already open, instead of one that the SDK opens."""

import time
from typing import Any

import docker
import paramiko
import requests.adapters
from docker.transport import SSHHTTPAdapter
from docker.transport.sshconn import RecentlyUsedContainer

_URL = "http+docker://ssh"
"""The address from which the SDK knows that its streams are SSH channels."""
_KEPT = 2
"""Channels that stay open for the next request."""
_FRESH_S = 60.0
"""A channel that was unused for longer is not used again: the engine closes its end after five minutes."""
_UNUSED = "http://127.0.0.1:1"
"""The SDK wants an address; ours replaces it before the first request."""


class _OverClient(SSHHTTPAdapter):
    """The SDK's own SSH transport, except that the connection is given: the SDK would open one itself."""

    def __init__(self, client: paramiko.SSHClient, timeout: int) -> None:
        self.ssh_client = client
        self.ssh_host = ""
        self.timeout = timeout
        self.max_pool_size = _KEPT
        pools: Any = RecentlyUsedContainer(1, dispose_func=lambda pool: pool.close())
        self.pools = pools
        self._kept = pools  # the same, of a type that mypy knows
        self._used_at = time.monotonic()
        requests.adapters.HTTPAdapter.__init__(self)

    def get_connection(self, _url: Any, proxies: Any = None) -> Any:
        """Use one pool for all addresses: the SDK's pool for each of them soon uses up sshd's MaxSessions (10)."""
        return super().get_connection(_URL, proxies)

    def send(self, *arguments: Any, **options: Any) -> Any:
        """Send a request, over a new channel where the others have been idle for long."""
        if time.monotonic() - self._used_at > _FRESH_S:
            self._kept.clear()
        try:
            return super().send(*arguments, **options)
        finally:
            self._used_at = time.monotonic()

    def _connect(self) -> None:
        """Never open a connection: nobody would have checked its host key."""
        raise paramiko.SSHException("the connection to the node is closed")

    def close(self) -> None:
        requests.adapters.HTTPAdapter.close(self)


def over(client: paramiko.SSHClient, *, timeout_s: int) -> docker.DockerClient:
    """Return a client of the engine at the other end of `client`, which is asked only for its API version yet.

    Raises:
        docker.errors.DockerException: no engine answers there.
    """
    adapter = _OverClient(client, timeout_s)
    engine = docker.DockerClient(base_url=_UNUSED, version="1.40", timeout=timeout_s)
    api: Any = engine.api
    api.mount(_URL, adapter)
    api.base_url = _URL
    api._custom_adapter = adapter
    # Engines of 2025 and later no longer speak the version of the oldest ones, so each is asked for its own.
    api._version = api._retrieve_server_version()
    return engine
