"""Waits for a node: until it has booted, until it answers the operator."""

import subprocess
import time

from lab.base.place import Place
from lab.base.say import say
from lab.host import inotify
from lab.nodes.node import Node
from launcher.base.errors import ExitCode, RingmasterError

_SECONDS = 90.0
_WORDS = 200
"""Of each source's last words, how many characters are shown."""


def await_systemd(node: Node, *, fresh: bool = False) -> None:
    """Wait until the node has booted; all units of a fresh one must run, those that failed on others are reported.

    Raises:
        RingmasterError: a unit of a fresh node failed, or the boot takes too long.
    """
    deadline = time.monotonic() + _SECONDS
    status = ""
    while time.monotonic() < deadline:
        if node.state == "running":
            status = _systemd_status(node)
            if status in {"running", "degraded"}:
                break
        else:
            status = ""
        time.sleep(0.2)
    if status == "degraded":
        units = node.run("systemctl", "list-units", "--failed", "--plain", "--no-legend", check=False)
        failed = ", ".join(line.split()[0] for line in units.splitlines() if line.strip()) or "one, now running"
        if not fresh:
            say(f"{node.name}: some units failed: {failed}; `python -m lab renew {node.name}` makes it anew")
            return
        raise RingmasterError(
            f"{node.name}: units failed at its first boot: {failed}; `make lab-down`, then try again",
            exit_code=ExitCode.NOT_STARTED,
        )
    if status != "running":
        raise RingmasterError(
            f"{node.name}: did not boot in {_SECONDS:.0f} s ({_why_not_booted(node, status)}); "
            "`make lab-down`, then try again",
            exit_code=ExitCode.NOT_STARTED,
        )


def _why_not_booted(node: Node, status: str) -> str:
    """Return all that the engine, systemd and the journal say of it, on one line."""
    used_up = "this machine's inotify instances are used up" if inotify.used_up() else ""
    found, state = {"": used_up}, node.state
    if state == "running":
        found |= {
            "systemd": status or "no answer",
            "still starting": _units(node, 1, "running", "list-jobs"),
            "failed": _units(node, 0, "failed", "list-units", "--failed"),
            "journal": _shown(node, "journalctl", "-b", "-q", "-o", "cat", "-p", "err", "-n", "3"),
        }
    else:
        ended = node.container.attrs["State"]
        found["its container"] = f"{state}, last exit status {ended['ExitCode']} {ended['Error']}"
    found["its output"] = node.container.logs(tail=3).decode(errors="replace")
    told = {what: " ".join(text.split())[-_WORDS:] for what, text in found.items()}
    return "; ".join(f"{what}: {text}" if what else text for what, text in told.items() if text)


def _units(node: Node, column: int, state: str, *listing: str) -> str:
    """Return the units in that state, of a list of systemctl's that has their names in that column."""
    rows = (line.split() for line in _shown(node, "systemctl", *listing, "--plain", "--no-legend").splitlines())
    return ", ".join(row[column] for row in rows if state in row)


def _shown(node: Node, *words: str) -> str:
    """Return a command's output; empty if it fails, or doesn't end: not much works in a node that doesn't boot."""
    try:
        code, text = node.ask("timeout", "10", *words)
    except RingmasterError:
        return ""
    return "" if code else text


def _systemd_status(node: Node) -> str:
    try:
        # With a limit: a job inside that never ends would hold this until the engine's client gives up.
        return node.run("timeout", "10", "systemctl", "is-system-running", "--wait", check=False).strip()
    except RingmasterError:  # it ended after the engine said that it is running
        return ""


def ssh(place: Place, name: str, *command: str, timeout: float = 60) -> "subprocess.CompletedProcess[str]":
    """Run a command line on a node as the operator would: with ssh, and with nothing but the written files."""
    return subprocess.run(
        ["ssh", "-F", str(place.ssh_config), "-o", "BatchMode=yes", name, *command],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip


def await_ssh(place: Place, name: str) -> None:
    """Wait until the node lets the operator in.

    Raises:
        RingmasterError: it takes too long.
    """
    deadline = time.monotonic() + _SECONDS
    while reason := _ssh_refusal(place, name):
        if time.monotonic() > deadline:
            raise RingmasterError(
                f"{name}: no ssh in {_SECONDS:.0f} s ({reason}); `python -m lab renew {name}` makes it anew",
                exit_code=ExitCode.NOT_STARTED,
            )
        time.sleep(0.2)


def _ssh_refusal(place: Place, name: str) -> str:
    """Return why the operator does not get in; empty if the login works."""
    try:
        done = ssh(place, name, "true", timeout=20)
    except subprocess.TimeoutExpired:
        return "it does not answer"
    return " ".join(done.stderr.split()) or f"status {done.returncode}" if done.returncode else ""
