"""Waits for a node: until it has booted, until it answers the operator."""

import subprocess
import time

from launcher.errors import ExitCode, RingmasterError
from tests.lab.node import Node
from tests.lab.place import Place

_SECONDS = 90


def await_systemd(node: Node) -> None:
    """Wait until the node's systemd says `running`.

    Raises:
        RingmasterError: a unit failed, or it takes too long.
    """
    deadline = time.monotonic() + _SECONDS
    said = ""
    while time.monotonic() < deadline:
        if node.state == "running":
            said = _systemd_says(node)
            if said in {"running", "degraded"}:
                break
        else:
            said = node.container.logs(tail=3).decode(errors="replace")
        time.sleep(0.2)
    if said != "running":
        failed = node.run("systemctl", "--failed", "--no-legend", check=False) if said == "degraded" else ""
        raise RingmasterError(
            f"{node.name}: did not boot in {_SECONDS} s ({' '.join(f'{said} {failed}'.split())[-300:]}); "
            "`make lab-down`, then try again",
            exit_code=ExitCode.NOT_STARTED,
        )


def _systemd_says(node: Node) -> str:
    try:
        return node.run("systemctl", "is-system-running", "--wait", check=False).strip()
    except RingmasterError:  # it went between the question before and this one
        return ""


def ssh(place: Place, name: str, *command: str, timeout: float = 60) -> "subprocess.CompletedProcess[str]":
    """Run a command line on a node as the operator would: by ssh, with the written files alone."""
    return subprocess.run(
        ["ssh", "-F", str(place.ssh_config), "-o", "BatchMode=yes", name, *command],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip


def await_ssh(place: Place, name: str) -> None:
    """Wait until the node lets the operator in."""
    deadline = time.monotonic() + _SECONDS
    while (done := ssh(place, name, "true")).returncode:
        if time.monotonic() > deadline:
            raise RingmasterError(
                f"{name}: no ssh in {_SECONDS} s: {' '.join(done.stderr.split())}", exit_code=ExitCode.NOT_STARTED
            )
        time.sleep(0.2)
