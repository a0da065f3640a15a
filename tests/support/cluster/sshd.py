"""A real SSH server in this process, and an operator with keys of its own."""

import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import paramiko

from launcher.inventory.hosts import Host
from launcher.inventory.ssh_options import SshOptions


class Sshd(paramiko.ServerInterface):
    """Lets one key in, and runs what it is told to in a shell, as sshd does."""

    def __init__(self, folder: Path, *, accepts: paramiko.PKey) -> None:
        self.key = new_key(folder)
        self.offered: list[paramiko.PKey] = []
        self._accepts = accepts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.transports: list[paramiko.Transport] = []
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

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._run, args=(channel, command), daemon=True).start()
        return True

    def _run(self, channel: paramiko.Channel, command: bytes) -> None:
        with suppress(OSError, EOFError):
            if command == b"hang-up":
                channel.get_transport().close()
                return
            given = b"" if command == b"cat-nothing" else channel.makefile("rb").read()
            done = subprocess.run(["/bin/sh", "-c", command], input=given, capture_output=True, check=False)
            channel.sendall(done.stdout)
            channel.sendall_stderr(done.stderr)
            channel.send_exit_status(done.returncode)
            channel.close()


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
