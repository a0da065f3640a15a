"""A real SSH server in this process, and an operator with keys of its own."""

import os
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

import paramiko

from launcher.inventory.hosts import Host
from launcher.inventory.ssh_options import SshOptions

BRIDGE = """
import os, socket, sys, threading
print(*sys.argv[3:], file=sys.stderr)
end = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def there():
    while data := os.read(0, 65536):
        end.sendall(data)
threading.Thread(target=there, daemon=True).start()
while data := end.recv(65536):
    os.write(1, data)
"""
"""A program for a ProxyCommand: takes an address, a port, and words that it prints on its standard error."""

HANG_UP = 99
"""The exit code of a program after which the server ends the connection."""


class Sshd(paramiko.ServerInterface):
    """Lets one key in, and runs what it is told to in a shell, as sshd does."""

    def __init__(self, folder: Path, *, accepts: paramiko.PKey, dumb: bool = False) -> None:
        self.key = new_key(folder)
        self.offered: list[paramiko.PKey] = []
        self._accepts = accepts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.transports: list[paramiko.Transport] = []
        self.password: str | None = None
        """With which the user may log in too; None: with a key only."""
        self.asks_by = "password"
        """The way in which it wants the password; "keyboard-interactive" is PAM's."""
        self.tried: list[str] = []
        """The passwords that were tried."""
        self.banner = ""
        """What is shown to everybody before the login."""
        self.shell = "/bin/sh"
        """The user's login shell."""
        self.sessions = 1000
        """How many may still be opened; sshd's MaxSessions counts those of one connection that are open."""
        self.turns_away = 0
        """How many connections are still closed before anything is said, as MaxStartups does."""
        self.taken = threading.Event()
        """Whether a connection was taken."""
        self._dumb = dumb
        self._silent: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def stop(self) -> None:
        with suppress(OSError):  # stopped already
            self._listener.shutdown(socket.SHUT_RDWR)  # closing alone doesn't wake who waits for the next one
        self._listener.close()
        for transport in self.transports:
            transport.close()

    def _serve(self) -> None:
        while True:
            try:
                taken, _ = self._listener.accept()
            except OSError:  # stopped
                return
            self.taken.set()
            if self.turns_away > 0:
                self.turns_away -= 1
                taken.close()
                continue
            if self._dumb:
                self._silent.append(taken)
                continue
            transport = paramiko.Transport(taken)
            transport.add_server_key(self.key)
            transport.set_subsystem_handler("sftp", paramiko.SFTPServer)
            self.transports.append(transport)
            with suppress(paramiko.SSHException, EOFError):  # who doesn't like our key hangs up
                transport.start_server(server=self)

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.offered.append(key)
        fits = username == "ops" and key == self._accepts
        return paramiko.AUTH_SUCCESSFUL if fits else paramiko.AUTH_FAILED

    def check_auth_password(self, username: str, password: str) -> int:
        self.tried.append(password)
        return paramiko.AUTH_SUCCESSFUL if password == self.password else paramiko.AUTH_FAILED

    def check_auth_interactive(self, username: str, submethods: str) -> paramiko.InteractiveQuery:
        return paramiko.InteractiveQuery("", "", ("Password: ", False))

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        return self.check_auth_password("", responses[0])

    def get_allowed_auths(self, username: str) -> str:
        return "publickey" if self.password is None else f"publickey,{self.asks_by}"

    def get_banner(self) -> tuple[str, str]:
        return self.banner, "en-US"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        self.sessions -= 1
        return paramiko.OPEN_SUCCEEDED if self.sessions >= 0 else paramiko.OPEN_FAILED_CONNECT_FAILED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._run, args=(channel, command), daemon=True).start()
        return True

    def _run(self, channel: paramiko.Channel, command: bytes) -> None:
        _, port = channel.get_transport().sock.getsockname()[:2]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        environment = {**os.environ, "SSH_CONNECTION": f"127.0.0.1 1 127.0.0.1 {port}"}
        with subprocess.Popen([self.shell, "-c", command], env=environment, bufsize=0, **pipes) as process:
            threading.Thread(target=_feed, args=(channel, process), daemon=True).start()
            errors = threading.Thread(target=_pass, args=(process.stderr, channel.sendall_stderr), daemon=True)
            errors.start()
            _pass(process.stdout, channel.sendall)
            errors.join()
        if process.returncode == HANG_UP:
            channel.get_transport().close()
            return
        with suppress(OSError, EOFError, paramiko.SSHException):
            channel.send_exit_status(abs(process.returncode))
            channel.close()


def _feed(channel: paramiko.Channel, process: "subprocess.Popen[bytes]") -> None:
    """Hand on what the client sends; a program whose client is gone is ended."""
    with suppress(OSError, EOFError, ValueError), process.stdin:
        while data := channel.recv(1 << 15):
            process.stdin.write(data)
    channel.status_event.wait()  # it is closed
    if process.poll() is None:
        process.kill()


def _pass(pipe: IO[bytes], send: Callable[[bytes], None]) -> None:
    with suppress(OSError, EOFError, ValueError):
        while data := pipe.read(1 << 15):
            send(data)


def new_key(folder: Path) -> paramiko.PKey:
    path = folder / f"key{len(list(folder.iterdir()))}"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return paramiko.Ed25519Key.from_private_key_file(str(path))


class Place:
    """An operator's files, and the machines they know."""

    def __init__(self, folder: Path) -> None:
        self.keys, self.pins = folder / "keys", folder / "known_hosts"
        self.keys.mkdir()
        self.mine = new_key(self.keys)
        self.my_file = self.keys / "key0"
        self.pins.touch()
        self.machines: list[Sshd] = []

    def machine(self) -> Sshd:
        self.machines.append(Sshd(self.keys, accepts=self.mine))
        return self.machines[-1]

    def pin(self, port: int, key: paramiko.PKey) -> None:
        with self.pins.open("a") as file:
            file.write(f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n")

    def host(self, port: int, name: str = "node1", user: str = "ops", key_file: str = "") -> Host:
        args = "-F /dev/null -o UserKnownHostsFile=/dev/null -o IdentitiesOnly=yes"
        reached = SshOptions(port=port, user=user, key_file=key_file or str(self.my_file), common_args=args)
        return Host(name=name, address="127.0.0.1", ssh=reached)
