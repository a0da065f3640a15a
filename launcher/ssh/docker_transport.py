"""The Docker SDK over an SSH connection that is open already, instead of one of the SDK's own."""

from typing import Any

import docker
import paramiko
import requests.adapters
from docker.transport import SSHHTTPAdapter
from docker.transport.sshconn import RecentlyUsedContainer

_URL = "http+docker://ssh"
"""By this address the SDK knows that its streams are SSH channels."""
_KEPT = 2
"""Channels that stay open for the next question."""
_UNUSED = "http://127.0.0.1:1"
"""The SDK wants an address; ours takes its place before anything is asked."""


class _OverClient(SSHHTTPAdapter):
    """The SDK's own SSH transport, but for the connection, which it would open by itself."""

    def __init__(self, client: paramiko.SSHClient, timeout: int) -> None:
        self.ssh_client = client
        self.ssh_host = ""
        self.timeout = timeout
        self.max_pool_size = _KEPT
        pools: Any = RecentlyUsedContainer(1, dispose_func=lambda pool: pool.close())
        self.pools = pools
        requests.adapters.HTTPAdapter.__init__(self)

    def get_connection(self, _url: Any, proxies: Any = None) -> Any:
        """One pool for all: one for each address, as it is without this, soon uses up sshd's MaxSessions (10)."""
        return super().get_connection(_URL, proxies)

    def _connect(self) -> None:
        """Never by itself: that would be a connection whose host key nobody has checked."""
        raise paramiko.SSHException("the connection to the node is closed")

    def close(self) -> None:
        requests.adapters.HTTPAdapter.close(self)


def over(client: paramiko.SSHClient, *, timeout_s: int) -> docker.DockerClient:
    """Return a client of the engine at the other end of `client`; nothing is asked of it yet but its API version.

    Raises:
        docker.errors.DockerException: no engine answers there.
    """
    adapter = _OverClient(client, timeout_s)
    made = docker.DockerClient(base_url=_UNUSED, version="1.40", timeout=timeout_s)
    api: Any = made.api
    api.mount(_URL, adapter)
    api.base_url = _URL
    api._custom_adapter = adapter
    # Asked, because engines of 2025 and later no longer speak the version that the oldest ones do.
    api._version = api._retrieve_server_version()
    return made
