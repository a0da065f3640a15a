"""Hands passwords to ansible-playbook: through named pipes, each of which gives its password once.

Its command line and its environment, which others may see, only name the pipes, and no file has their content. The
processes that it forks have the passwords from its memory. (Named ones, because Ansible resolves the links in these
paths: of `/dev/fd/7` nothing that can be opened would be left.)
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from launcher.base.password_pipe import PasswordPipe
from launcher.inventory.passwords import Passwords


@contextmanager
def handed_over(environment: Mapping[str, str], passwords: Passwords, folder: Path) -> Iterator[dict[str, str]]:
    """Yield the environment of a child that asks for nothing, and has these passwords.

    What it would find for itself (a script that asks, a list in ansible.cfg) is overridden where we have it already.

    Args:
        folder: where the pipes are made; nobody else may have access to it.
    """
    waiting: list[PasswordPipe] = []

    def pipe(password: bytes) -> str:
        waiting.append(PasswordPipe(folder / f"password-{len(waiting)}", password))
        return str(waiting[-1].path)

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
        for each in waiting:
            each.take_back()
