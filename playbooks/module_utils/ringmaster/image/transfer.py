"""What the `docker` command says, and a pull over the WAN by it, which is tried again after a while."""

from __future__ import annotations

import re
import subprocess
import time

from ansible.module_utils.ringmaster.image.engine import command

_PAUSES = (2, 5, 15)
"""Seconds before each further try; the engine itself tries each layer again five times."""
_HOPELESS = (
    "manifest unknown", "not found", "unauthorized", "denied", "no space left", "invalid reference", "x509",
    "prohibited",
)  # fmt: skip
_TIMED_OUT = 124


def pull(name: str, *, home: str, seconds: float) -> None:
    """Pull an image with the logins of the user of that home.

    Raises:
        ValueError: it failed each time, or for a reason that another try can't change.
    """
    deadline = time.monotonic() + seconds
    for pause in (*_PAUSES, None):
        try:
            _pull_once(name, home, deadline - time.monotonic())
            return
        except ValueError as error:
            problem = str(error).lower()
            if pause is None or time.monotonic() > deadline or any(one in problem for one in _HOPELESS):
                raise
        time.sleep(pause)


def pushed_digest(output: str) -> str:
    """Return the digest of an image that was pushed, as the engine said it. Pure.

    Raises:
        ValueError: it didn't.
    """
    digests = re.findall(r"digest: (sha256:[0-9a-f]{64})", output)
    if not digests:
        raise ValueError(f"`docker push` names no digest ({reason(output)})")
    return str(digests[-1])


def reason(output: str) -> str:
    """Return why `docker` failed, from what it said. Pure."""
    lines = output.strip().splitlines() or ["it said nothing"]
    return lines[-1].replace("Error response from daemon: ", "")


def _pull_once(name: str, home: str, seconds: float) -> None:
    words, environment = command(home, "pull", name)
    limit = max(1, int(seconds))
    done = subprocess.run(
        ["timeout", str(limit), *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
    )  # fmt: skip
    if done.returncode == _TIMED_OUT:
        raise ValueError(f"it took longer than {limit} s")
    if done.returncode:
        raise ValueError(reason(done.stdout))
