"""Runs ansible-playbook as a child: passes its output on, says what takes long, and stops it when we are stopped."""

import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ROOT
from launcher.base.sweep import sweep
from launcher.base.terminal import mute
from launcher.inventory.passwords import Passwords
from launcher.on_node.rank import die_with_parent
from launcher.provision.handover import handed_over
from launcher.provision.heartbeat import current_task, heartbeat

_SILENCE_S = 10.0
"""How long Ansible may print nothing before a heartbeat says what is running."""
_TICK_S = 0.2
_ORDERLY_S = 3.0
"""How long Ansible has after a Ctrl-C, which it gets from the terminal too, before it gets a SIGTERM."""
_KILL_S = 10.0
"""From the first signal until everything is killed."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a playbook ended."""

    code: int
    """ansible-playbook's exit code."""
    signal: int | None
    """The first signal that told us to stop."""
    began: bool
    """Whether any task started."""
    result: str
    """The callback plugin's JSON; empty if the playbook did not reach its end."""


def run(command: Sequence[str], environment: Mapping[str, str], passwords: Passwords) -> Ended:
    """Run `command`, which gets the passwords, in the repository's root (so that ansible.cfg is in effect) to its end.

    Raises:
        RingmasterError: it can't be started.
    """
    with (
        tempfile.TemporaryDirectory(prefix="ringmaster-", dir=_temporary()) as folder,
        handed_over(environment, passwords, Path(folder)) as given,
    ):
        result, notes = Path(folder) / "result.json", Path(folder) / "progress"
        own = {"RINGMASTER_RESULT": str(result), "RINGMASTER_PROGRESS": str(notes)}
        child = _Child(command, {**given, **own}, notes)
        try:
            code = child.follow()
        finally:
            child.kill()
            if child.signal is not None or child.killed:
                sweep(f"RINGMASTER_RESULT={result}")
        return Ended(
            code=code,
            signal=child.signal,
            began=notes.exists() and bool(current_task(notes.read_text(encoding="utf-8")).name),
            result=result.read_text(encoding="utf-8") if result.exists() else "",
        )


def _temporary() -> str:
    """Return where temporary files go; in its path there is nothing that Ansible reads as more than a path.

    It parts its list of Vault's identities at commas, and replaces `$NAME` in the paths of password files.
    """
    usual = tempfile.gettempdir()
    return "/tmp" if {",", "$"} & set(usual) else usual  # noqa: S108 - a folder of our own is made there


class _Child:
    """ansible-playbook while it is running."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], notes: Path) -> None:
        self.signal: int | None = None
        self.killed = False
        self._command = command
        self._environment = environment
        self._notes = notes
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped_at = 0.0
        self._terminated = False
        self._muted = False

    def follow(self) -> int:
        """Start it, pass its output on until it ends, and return its exit code."""
        with self._signals(), selectors.DefaultSelector() as selector:
            self._process = process = self._start()
            assert process.stdout is not None
            selector.register(process.stdout, selectors.EVENT_READ)
            output_at = time.monotonic()
            while True:
                code = process.poll()
                ready = selector.select(0 if code is not None else _TICK_S)
                data = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
                if data:
                    output_at = time.monotonic()
                    self._write(data)
                elif code is not None:
                    return code
                elif ready:  # it has closed its output
                    selector.unregister(process.stdout)
                self._escalate()
                if time.monotonic() - output_at >= _SILENCE_S:
                    output_at = time.monotonic()
                    self._write(f"{self._heartbeat()}\n".encode())

    def _start(self) -> "subprocess.Popen[bytes]":
        try:
            # In our own process group: questions for a password reach the terminal, and its Ctrl-C reaches Ansible.
            return subprocess.Popen(
                self._command,
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                preexec_fn=lambda: die_with_parent(signal.SIGTERM),
            )
        except OSError as error:
            raise RingmasterError(
                f"can't start {self._command[0]}: {error.strerror}; make installs it", exit_code=ExitCode.NOT_STARTED
            ) from error

    def kill(self) -> None:
        """End it at once, if it is still running."""
        if self._process is not None and self._process.poll() is None:
            self.killed = True
            self._process.kill()
            self._process.wait()

    def _heartbeat(self) -> str:
        notes = self._notes.read_text(encoding="utf-8") if self._notes.exists() else ""
        return heartbeat(current_task(notes), time.time())

    def _escalate(self) -> None:
        """Stop a child that goes on after the first signal, more and more firmly."""
        if self.signal is None:
            return
        since = time.monotonic() - self._stopped_at
        if since > _KILL_S:
            self.kill()
        elif not self._terminated and since > _ORDERLY_S:
            self._terminate()

    def _terminate(self) -> None:
        if self._process is not None:
            self._terminated = True
            self._process.terminate()

    def _on_signal(self, signum: int, _frame: object) -> None:
        if self.signal is None:
            self.signal, self._stopped_at = signum, time.monotonic()
            if signum != signal.SIGINT:
                self._terminate()
        elif signum == signal.SIGINT:
            self.kill()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        chosen = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {signum: signal.signal(signum, self._on_signal) for signum in chosen}
        try:
            yield
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)

    def _write(self, data: bytes) -> None:
        """Pass output on; if nobody reads it any more (`| head`), that is no reason to leave nodes half done."""
        if self._muted:
            return
        try:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except (OSError, ValueError, AttributeError):
            self._muted = True
            mute()
