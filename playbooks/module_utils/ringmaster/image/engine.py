"""The node's Docker engine and its images: the socket answers questions, the `docker` command transfers.

Only the command has the logins that someone has made with `docker login`.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
from typing import Any
from urllib.parse import quote

from ansible.module_utils.ringmaster.engine.socket import SOCKET, SocketConnection

_MISSING, _CONFLICT = 404, 409


class InUseError(ValueError):
    """The image is used by a container."""


class Engine:
    """Questions and small requests. Each raises OSError where no engine answers, ValueError where it refuses."""

    def __init__(self, path: str = SOCKET, timeout: float = 60) -> None:
        self.path = path
        self.timeout = timeout

    def inspect(self, image: str) -> dict[str, Any] | None:
        """Return what the engine knows of an image (by name, name@digest or ID), or None."""
        answer: dict[str, Any] | None = self._call("GET", f"/images/{_quoted(image)}/json")
        return answer

    def chains(self) -> list[list[str]]:
        """Return the layers (uncompressed digests, lowest first) of every image on this node."""
        ids = {one["Id"] for one in self._call("GET", "/images/json") or []}
        return [found["RootFS"].get("Layers") or [] for found in map(self.inspect, ids) if found]

    def root(self) -> str:
        """Return the folder where images are kept."""
        return str((self._call("GET", "/info") or {}).get("DockerRootDir") or "/var/lib/docker")

    def tag(self, image: str, name: str) -> None:
        repository, _, tag = name.rpartition(":")
        if self._call("POST", f"/images/{_quoted(image)}/tag?repo={quote(repository, safe='')}&tag={tag}") is None:
            raise ValueError(f"the engine has no image {image}")

    def untag(self, name: str) -> None:
        """Remove a name, and the image with its last one; a missing name is fine.

        Raises:
            InUseError: a container uses the image.
        """
        self._call("DELETE", f"/images/{_quoted(name)}")

    def _call(self, method: str, path: str) -> Any:
        """Return the answer; None where the engine has no such thing."""
        connection = SocketConnection(self.path, self.timeout)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        except http.client.HTTPException as error:
            raise OSError(f"the Docker engine sends no valid HTTP: {error!r}") from error
        except socket.timeout as error:  # until Python 3.9 that is no TimeoutError
            raise OSError(
                f"the Docker engine does not answer within {self.timeout:.0f} s: `journalctl -u docker` says why"
            ) from error
        except OSError as error:
            reason = error.strerror or error
            raise OSError(f"the Docker engine doesn't answer ({reason}): `systemctl start docker`") from error
        finally:
            connection.close()
        if answer.status == _MISSING:
            return None
        if answer.status >= http.client.BAD_REQUEST:
            refusal = InUseError if answer.status == _CONFLICT else ValueError
            raise refusal(f"the Docker engine says: {_message(text)}")
        return json.loads(text) if text else {}


def command(home: str, *words: str) -> tuple[list[str], dict[str, str]]:
    """Return the `docker` command with these words, and an environment with the logins of the user of that home.

    Raises:
        ValueError: it is not installed.
    """
    program = shutil.which("docker")
    if program is None:
        raise ValueError("the command `docker` is not installed: install it with the engine (docker.io or docker-cli)")
    folder = os.path.join(home, ".docker")
    logins = {"DOCKER_CONFIG": folder} if os.path.exists(os.path.join(folder, "config.json")) else {}
    # The socket too: the user's configuration may name another engine (`docker context use`).
    return [program, *words], {**os.environ, **logins, "DOCKER_HOST": f"unix://{SOCKET}"}


def _quoted(image: str) -> str:
    return quote(image, safe="/:@")


def _message(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip()[:200]
