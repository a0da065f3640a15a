"""A `docker` command as a unit: it goes on between the questions of how far it is."""

from __future__ import annotations

import glob
import itertools
import os
import shlex
import subprocess
import time

from ansible.module_utils.ringmaster.core.disk import read
from ansible.module_utils.ringmaster.engine.socket import SOCKET
from ansible.module_utils.ringmaster.image.names import PULL_UNIT, PUSH_UNIT
from ansible.module_utils.ringmaster.image.registry import FOLDER, run_unit
from ansible.module_utils.ringmaster.image.transfer import reason

_POLL_SECONDS = 0.2
_ASKED_EVERY = 10
"""At how many polls systemd is asked: a program each time, on all nodes at once while the image arrives there."""


class DockerUnit:
    """The command that runs as this unit, and how it ended."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._said, self._code = f"{FOLDER}/{unit}.log", f"{FOLDER}/{unit}.code"

    def begun(self, name: str) -> bool:
        """Return whether it works on this image, or has ended since the last `stop`."""
        return self.runs(name) or self._ended()[1] == name

    def brings(self, name: str) -> bool:
        """Return whether it works on this image, or has done so with success since the last `stop`."""
        return self.runs(name) or self._ended() == ("0", name)

    def runs(self, name: str) -> bool:
        """Return whether it works on this image."""
        if not self._running():
            return False
        words = ["systemctl", "show", "--property=Description", "--value", self._unit]
        return name in subprocess.run(words, capture_output=True, text=True, timeout=60).stdout

    def begin(self, verb: str, name: str, seconds: float) -> None:
        """Begin to `pull` or `push` an image."""
        docker = shlex.join(["docker", f"--host=unix://{SOCKET}", verb, name])
        script = f"{docker} >{self._said} 2>&1; echo $? {shlex.quote(name)} >{self._code}"
        limit = f"--property=RuntimeMaxSec={max(1, int(seconds))}"
        run_unit(self._unit, limit, f"--description=Ringmaster: docker {verb} {name}", "sh", "-c", script)

    def wait(self, seconds: float) -> bool:
        """Wait at most so long for its end; return whether it has ended.

        Raises:
            ValueError: it failed.
        """
        deadline, running = time.monotonic() + seconds, True
        for poll in itertools.count():
            if poll % _ASKED_EVERY == 0:
                running = self._running()
            code, _ = self._ended()
            if code == "0":
                return True
            if code:
                raise ValueError(reason(self.said()))
            if not running:
                raise ValueError("it was stopped before its end, by another delivery or because it took too long")
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_SECONDS)
        return False

    def said(self) -> str:
        """Return what it has printed."""
        return read(self._said) or ""

    def stop(self) -> None:
        """Stop it, if it runs, and forget how it ended."""
        _stop(self._unit)

    def _ended(self) -> tuple[str, str]:
        """Return the code with which it ended, and the image; empty if it has not."""
        code, _, name = (read(self._code) or "").strip().partition(" ")
        return code, name

    def _running(self) -> bool:
        return subprocess.run(["systemctl", "is-active", "--quiet", self._unit], timeout=60).returncode == 0


PULL = DockerUnit(PULL_UNIT)
"""The pull from this node's own relay."""


def push_of(delivery: str) -> DockerUnit:
    """Return a delivery's push into this node's relay, which several may share."""
    return DockerUnit(f"{PUSH_UNIT}-{delivery}")


def stop_pushes() -> None:
    """Stop those of all deliveries."""
    _stop(f"{PUSH_UNIT}-*")


def _stop(pattern: str) -> None:
    subprocess.run(["systemctl", "stop", pattern], capture_output=True, timeout=60)
    for path in (*glob.glob(f"{FOLDER}/{pattern}.log"), *glob.glob(f"{FOLDER}/{pattern}.code")):
        os.unlink(path)
