"""Hands passwords to ansible-playbook: through named pipes, each of which gives its password once.

Its command line and its environment, which others may see, only name the pipes, and no file has their content. The
processes that it forks have the passwords from its memory. (Named ones, because Ansible resolves the links in these
paths: of `/dev/fd/7` nothing that can be opened would be left.)
"""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from launcher.inventory.passwords import Passwords


@contextmanager
def handed_over(environment: Mapping[str, str], passwords: Passwords, folder: Path) -> Iterator[dict[str, str]]:
    """Yield the environment of a child that asks for nothing, and has these passwords.

    What it would find for itself (a script that asks, a list in ansible.cfg) is overridden where we have it already.

    Args:
        folder: where the pipes are made; nobody else may have access to it.
    """
    waiting: dict[Path, threading.Thread] = {}

    def pipe(password: bytes) -> str:
        path = folder / f"password-{len(waiting)}"
        os.mkfifo(path, 0o600)
        waiting[path] = threading.Thread(target=_give, args=(path, password), daemon=True)
        waiting[path].start()
        return str(path)

    vault = passwords.vault
    changed = {**environment, "ANSIBLE_ASK_VAULT_PASS": "0"}
    for name in ("ANSIBLE_VAULT_IDENTITY_LIST", "ANSIBLE_VAULT_PASSWORD_FILE"):
        changed.pop(name, None)
    try:
        if vault.listed:
            changed["ANSIBLE_VAULT_IDENTITY_LIST"] = ",".join(f"{name}@{pipe(each)}" for name, each in vault.listed)
        for _, password in vault.of_file:
            changed["ANSIBLE_VAULT_PASSWORD_FILE"] = pipe(password)
        if passwords.sudo:
            changed |= {
                "ANSIBLE_BECOME_PASSWORD_FILE": pipe(os.fsencode(passwords.sudo)),
                "ANSIBLE_BECOME_ASK_PASS": "0",
            }
        if passwords.ssh:
            changed |= {"ANSIBLE_CONNECTION_PASSWORD_FILE": pipe(os.fsencode(passwords.ssh)), "ANSIBLE_ASK_PASS": "0"}
        yield changed
    finally:
        for path, writer in waiting.items():
            _take_back(path, writer)


def _give(path: Path, password: bytes) -> None:
    """Wait for the pipe's reader, and write."""
    with suppress(OSError), path.open("wb") as file:
        file.write(password + b"\n")


def _take_back(path: Path, writer: threading.Thread) -> None:
    """Read what nobody has read, so that the writer ends."""
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while writer.is_alive():
            with suppress(BlockingIOError):
                os.read(reading, 1 << 16)
            writer.join(0.01)
    finally:
        os.close(reading)
    path.unlink()
