"""An OpenSSH that holds the connection to one node, as our child: it alone dials, checks keys and logs in.

It runs `cat` on the node. That proves that programs can be started there, and ties its life to ours: when this process
ends, however it does, `cat` reads the end of its input, and with its only session the connection ends.
"""

import os
import re
import secrets
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from launcher.base.parallel import Done
from launcher.ssh import askpass, program
from launcher.ssh.reachability import STRICT_OPTIONS

_TICK_S = 0.1
_REST_S = 1.0
"""How long the last words of an ssh that has ended are waited for."""
_END_S = 2.0
"""How long an ssh has to end when it is told to."""
_MOST_WORDS = 1 << 16
_ALIVE = 'echo "$1 $SSH_CONNECTION"; exec cat'


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long nothing may come from a node: sshd itself is asked for a sign of life, whatever runs there."""

    every_s: int = 5
    """Firewalls and NAT forget a connection that is silent for minutes."""
    times: int = 6

    @property
    def died(self) -> str:
        """What is said of a node that gave no sign."""
        return f"no sign of life for {self.every_s * self.times} s"


def command(
    address: str, options: Sequence[str], control: Path, token: str, patience: Patience, *, asks: bool = False
) -> list[str]:
    """Return the ssh command that logs in, says `token`, and listens at `control`.

    Args:
        asks: whether it may ask for the node's password.
        options: those with which Ansible would call ssh. Of each option ssh takes the first value that it reads, and of
            each flag the last, so ours come on both sides of these.
    """
    ours = [*(askpass.OPTIONS if asks else ()), *STRICT_OPTIONS]
    ours += ["-o", "ControlMaster=yes", "-o", "ControlPersist=no", "-o", "RemoteCommand=none"]
    ours += ["-o", "PermitLocalCommand=no", "-o", "ForwardAgent=no", "-o", "ForwardX11=no", "-o", "Tunnel=no"]
    ours += ["-o", f"ServerAliveInterval={patience.every_s}", "-o", f"ServerAliveCountMax={patience.times}"]
    if _version() >= (8, 7):  # older ones have these neither here nor in their configuration
        ours += ["-o", "SessionType=default", "-o", "ForkAfterAuthentication=no", "-o", "StdinNull=no"]
    words = program.command_line(["sh", "-c", _ALIVE, "sh", token])
    ssh = ["ssh", *ours, *options, "-T", "-a", "-x", "-S", str(control).replace("%", "%%"), "--", address, words]
    return askpass.command(ssh) if asks else ssh


@cache
def _version() -> tuple[int, int]:
    done = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=False)
    found = re.search(r"OpenSSH_(\d+)\.(\d+)", done.stderr)
    return (int(found[1]), int(found[2])) if found else (0, 0)


class Master:
    """A running ssh."""

    def __init__(
        self, address: str, options: Sequence[str], control: Path, patience: Patience, pipe: Path | None = None
    ) -> None:
        """Args:
        pipe: from which the node's password can be read; None: nothing may be asked for.
        """
        self.port = 22
        """The port of the node's sshd, as the node itself sees it."""
        self._patience = patience
        self._token = f"ringmaster-{secrets.token_hex(8)}"
        # In a session of its own: Ctrl-C in the terminal is meant for us, who may still need the connection.
        self._process = subprocess.Popen(
            command(address, options, control, self._token, patience, asks=pipe is not None),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C", **(askpass.environment(pipe) if pipe else {})},
            start_new_session=True,
        )
        self.preamble = ""
        """What the node's shell printed before the program ran."""
        self._said = b""
        """Its last words, since the login if there was one."""
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def wait_ready(self, limit_s: float, over: threading.Event) -> Done | None:
        """Wait until it is logged in and a program runs; return its end if it ends instead, or takes too long.

        Args:
            over: set when nobody waits for the connection any longer.
        """
        ends = time.monotonic() + limit_s
        out = self._process.stdout
        assert out is not None
        heard = b""
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            while time.monotonic() < ends and not over.is_set():
                if not selector.select(_TICK_S):
                    continue
                data = os.read(out.fileno(), 1 << 16)
                if not data:
                    return self._done(_REST_S)
                heard = (heard + data)[-_MOST_WORDS:]
                found = re.search(rb"%s(.*)\n" % self._token.encode(), heard)
                if found:
                    self.port = _port(found[1].decode(errors="replace"))
                    self.preamble = heard[: found.start()].decode(errors="replace")
                    self._said = b""
                    return None
        return self._done(0.0)

    def why(self) -> str:
        """Return why the connection ended, in ssh's words or ours; empty if it didn't, or none are known."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_REST_S)
        if self._process.poll() is None:
            return ""
        self._listener.join(_REST_S)
        said = self._said.decode(errors="replace")
        if re.search(r"Timeout, server .* not responding", said):
            return self._patience.died
        return (said.strip().splitlines() or [""])[-1].strip()

    def end(self) -> None:
        """End it, and what it runs itself, such as the ssh to a jump host."""
        for number, limit_s in ((signal.SIGTERM, _END_S), (signal.SIGKILL, None)):
            if self._process.poll() is not None:
                break
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(limit_s)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()

    def _done(self, limit_s: float) -> Done:
        """Return how it ended, within `limit_s`; it is ended if it hasn't."""
        code: int | None = None
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(limit_s)
        self.end()
        self._listener.join(_REST_S)
        return Done(code=code, out="", err=self._said.decode(errors="replace"))

    def _listen(self) -> None:
        errors = self._process.stderr
        assert errors is not None
        with errors, suppress(OSError, ValueError):
            while data := os.read(errors.fileno(), 1 << 16):
                self._said = (self._said + data)[-_MOST_WORDS:]


def _port(connection: str) -> int:
    """Return the last of the words in SSH_CONNECTION: addresses and ports, the client's and the server's."""
    last = connection.split()[-1:]
    return int(last[0]) if last and last[0].isdigit() else 22
