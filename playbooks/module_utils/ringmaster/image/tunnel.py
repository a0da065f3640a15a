"""The way to the source's registry: its port on this node's loopback, through SSH, while it is needed."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import tempfile
import time
import urllib.request
from types import TracebackType

from ansible.module_utils.ringmaster.image.names import PORT

_OPEN_SECONDS = 20
_LONGEST = 10_000
# `cat` rather than -N: it ends when our end of its input closes, so a tunnel never outlives the process that opened it.
_SSH = (
    "ssh", "-T", "-a", "-x",
    "-o", "BatchMode=yes",
    "-o", "StrictHostKeyChecking=yes",
    "-o", "ExitOnForwardFailure=yes",
    "-o", "ConnectTimeout=10",
    "-o", "ServerAliveInterval=5",  # a silent network is noticed in 15 s
    "-o", "ServerAliveCountMax=3",
    "-o", "ControlMaster=no",
    "-o", "ControlPath=none",
    "-L", f"127.0.0.1:{PORT}:127.0.0.1:{PORT}",
)  # fmt: skip


class Tunnel:
    """A tunnel to a node that `ssh <source>` reaches as that user; `keep` opens it again after a break."""

    def __init__(self, user: str, source: str) -> None:
        self.user = user
        self.source = source
        self._ssh: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Tunnel:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._close()

    def keep(self) -> None:
        """Open it, unless it is open.

        Raises:
            OSError: SSH fails, or no registry answers at the other end.
        """
        if self._ssh is not None and self._ssh.poll() is None:
            return
        self._close()
        if not _port_is_free():
            raise OSError(f"port {PORT} of this node's loopback is taken by something else: `ss -ltnp` shows by what")
        with tempfile.TemporaryFile() as stderr:
            command = ["runuser", "-u", self.user, "--", *_SSH, self.source, "cat"]
            self._ssh = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=stderr)
            deadline = time.monotonic() + _OPEN_SECONDS
            while not answers():
                if self._ssh.poll() is not None or time.monotonic() > deadline:
                    words = _end_of(stderr.fileno())  # before we end ssh, which it would report there too
                    self._close()
                    raise OSError(no_tunnel(self.source, self.user, words))
                time.sleep(0.1)

    def _close(self) -> None:
        if self._ssh is None:
            return
        self._ssh.terminate()
        self._ssh.communicate()
        self._ssh = None


def no_tunnel(source: str, user: str, stderr: str) -> str:
    """Return why there is no tunnel, from ssh's output, and the remedy. Pure."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    reason = lines[-1] if lines else f"the registry at {source} does not answer"
    if "prohibited" in reason:
        remedy = f"let sshd at {source} forward (`AllowTcpForwarding yes`)"
    elif not lines or reason.startswith("channel "):
        remedy = f"see whether the delivery goes on at {source}, and run it again"
    else:
        remedy = "run `make provision TAGS=ssh_mesh`, and `make verify TAGS=ssh_mesh` shows which way fails"
    return f"no tunnel to {source} by SSH as {user} ({reason}): {remedy}"


def _end_of(descriptor: int) -> str:
    """Return the end of a file; its writer's position in it stays."""
    start = max(0, os.fstat(descriptor).st_size - _LONGEST)
    return os.pread(descriptor, _LONGEST, start).decode(errors="replace")


def answers() -> bool:
    """Return whether a registry answers at our port on this node's loopback."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            f"http://127.0.0.1:{PORT}/v2/", timeout=5
        ) as answer:
            return bool(answer.status == 200 and "Docker-Distribution-Api-Version" in answer.headers)
    except (OSError, http.client.HTTPException):
        return False


def _port_is_free() -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
        except OSError:
            return False
    return True
