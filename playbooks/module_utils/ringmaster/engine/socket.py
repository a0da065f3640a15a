"""Asks the Docker engine over its socket, without its command line."""

from __future__ import annotations

import http.client
import json
import os
import socket
from typing import Any
from urllib.parse import quote

SOCKET = "/run/docker.sock"
PIDFILE = "/run/docker.pid"
JOB = "ringmaster.job"
# Seconds: an engine that is stuck must not hold up everything.
_PATIENCE = 10


class SocketConnection(http.client.HTTPConnection):
    """HTTP over the engine's socket; `timeout` in seconds."""

    def __init__(self, path: str = SOCKET, timeout: float = _PATIENCE) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def process() -> int | None:
    """Return the running engine's pid.

    Ask this before connecting: a connection to the socket unit would start an engine that is stopped.
    """
    try:
        with open(PIDFILE, encoding="ascii") as file:
            pid = int(file.read())
        with open(f"/proc/{pid}/comm", encoding="ascii") as file:
            return pid if file.read().strip() == "dockerd" else None
    except (OSError, ValueError):
        return None


def ask(*paths: str) -> list[Any] | None:
    """Return the engine's answers, all over one connection; None where no engine runs, or it doesn't answer."""
    if process() is None or not os.path.exists(SOCKET):
        return None
    connection = SocketConnection()
    try:
        answers = []
        for path in paths:
            connection.request("GET", path)
            response = connection.getresponse()
            text = response.read()
            if response.status != 200:
                return None
            answers.append(json.loads(text))
        return answers
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def running_jobs() -> str:
    """Return the path that lists the running containers of jobs."""
    return "/containers/json?filters=" + quote(json.dumps({"label": [JOB]}))


def job_names(containers: list[dict[str, Any]]) -> list[str]:
    return sorted({one["Labels"][JOB] for one in containers if JOB in (one.get("Labels") or {})})


def names(containers: list[dict[str, Any]]) -> list[str]:
    return sorted(one["Names"][0].lstrip("/") for one in containers)
