"""Runs a command: in a container, or on this machine in such a way that stopping it leaves nothing behind."""

import os
import signal
import subprocess
from collections.abc import Sequence

from docker.models.containers import Container


def run(container: Container, *command: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Run a command in a container; return its exit status and its output, both streams together."""
    done = container.exec_run(list(command), environment=environment)
    output = done.output if isinstance(done.output, bytes) else b"".join(done.output)
    return int(done.exit_code or 0), output.decode(errors="replace")


def on_host(
    words: Sequence[str], *, timeout: float, environment: dict[str, str] | None = None, text: str = ""
) -> "subprocess.CompletedProcess[str]":
    """Run a program on this machine; if we are interrupted, it is asked to stop and may clean up before we go on.

    `subprocess.run` would kill it, and leave its mounts and its half-written files.
    """
    process = subprocess.Popen(
        words, env={**os.environ, **(environment or {})}, text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = process.communicate(text, timeout=timeout)
    except BaseException:
        _stop(process)
        raise
    return subprocess.CompletedProcess(words, process.returncode, output, "")


def _stop(process: "subprocess.Popen[str]") -> None:
    """Stop its whole session, as a terminal would: its children must end before it can clean up."""
    for number, seconds in ((signal.SIGTERM, 30), (signal.SIGKILL, 10)):
        try:
            os.killpg(process.pid, number)
            process.communicate(timeout=seconds)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
        return
