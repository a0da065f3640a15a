"""A pull from this node's own relay, as a unit: it goes on between the questions of how far it is."""

from __future__ import annotations

import os
import shlex
import subprocess
import time

from ansible.module_utils.ringmaster.core.disk import read
from ansible.module_utils.ringmaster.engine.socket import SOCKET
from ansible.module_utils.ringmaster.image.names import PULL_UNIT
from ansible.module_utils.ringmaster.image.registry import FOLDER, run_unit
from ansible.module_utils.ringmaster.image.transfer import reason

_SAID, _CODE = FOLDER + "/pull.log", FOLDER + "/pull.code"
_POLL_SECONDS = 0.2


def begun(name: str) -> bool:
    """Return whether a pull of this image runs, or has ended since the last `stop`."""
    return os.path.exists(_CODE) or runs(name)


def runs(name: str) -> bool:
    """Return whether a pull of this image runs."""
    words = ["systemctl", "show", "--property=Description", "--value", PULL_UNIT]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=60).stdout
    return _running() and name in shown


def begin(name: str, seconds: float) -> None:
    """Begin to pull an image."""
    script = f"docker --host=unix://{SOCKET} pull --quiet {shlex.quote(name)} >{_SAID} 2>&1; echo $? >{_CODE}"
    limit = f"--property=RuntimeMaxSec={int(seconds)}"
    run_unit(PULL_UNIT, limit, f"--description=Ringmaster fetches {name}", "sh", "-c", script)


def wait(seconds: float) -> bool:
    """Wait at most so long for its end; return whether it has ended.

    Raises:
        ValueError: it failed.
    """
    deadline = time.monotonic() + seconds
    while True:
        running = _running()
        code = (read(_CODE) or "").strip()
        if code == "0":
            return True
        if code:
            raise ValueError(reason(read(_SAID) or ""))
        if not running:
            raise ValueError("it was stopped before its end, by another delivery or because it took too long")
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)


def stop() -> None:
    """Stop it, if it runs, and forget how it ended."""
    subprocess.run(["systemctl", "stop", PULL_UNIT], capture_output=True, timeout=60)
    for path in (_SAID, _CODE):
        if os.path.exists(path):
            os.unlink(path)


def _running() -> bool:
    return subprocess.run(["systemctl", "is-active", "--quiet", PULL_UNIT], timeout=60).returncode == 0
