"""The way to the source's registry: its port on this node's loopback, through SSH, for as long as we need it."""

from __future__ import annotations

import http.client
import socket
import subprocess
import tempfile
import time
import urllib.request
from types import TracebackType

from ansible.module_utils.ringmaster_image_names import PORT

_OPEN_SECONDS = 20
# `cat` rather than -N: it ends with our end of its input, so a tunnel never outlives whoever opened it.
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
    """To a node that `ssh <source>` reaches as that user; `keep` opens it again when it has broken."""

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
        with tempfile.TemporaryFile() as said:
            words = ["runuser", "-u", self.user, "--", *_SSH, self.source, "cat"]
            self._ssh = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said)
            deadline = time.monotonic() + _OPEN_SECONDS
            while not answers():
                if self._ssh.poll() is not None or time.monotonic() > deadline:
                    self._close()
                    said.seek(0)
                    lines = said.read().decode(errors="replace").strip().splitlines()
                    reason = lines[-1] if lines else "the registry there does not answer"
                    raise OSError(f"no tunnel to {self.source} by SSH as {self.user}: {reason.strip()}")
                time.sleep(0.1)

    def _close(self) -> None:
        if self._ssh is None:
            return
        self._ssh.terminate()
        self._ssh.communicate()
        self._ssh = None


def answers() -> bool:
    """Whether a registry answers at our port on this node's loopback."""
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
