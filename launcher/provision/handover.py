"""Hands passwords to ansible-playbook: through pipes, which are empty once it has read them.

Its command line and its environment, which others may see, only name the pipes. The processes that it forks have the
passwords from its memory, so each pipe is read once.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from launcher.inventory.passwords import Passwords


@dataclass(frozen=True, kw_only=True)
class Handover:
    """What the child is started with."""

    environment: Mapping[str, str]
    pipes: Sequence[int]
    """File descriptors that it must inherit."""


@contextmanager
def handed_over(environment: Mapping[str, str], passwords: Passwords) -> Iterator[Handover]:
    """Yield the environment of a child that asks for nothing, and has these passwords; afterwards the pipes are closed.

    What it would find for itself (a script that asks, a list in ansible.cfg) is overridden where we have it already.
    """
    pipes: list[int] = []

    def pipe(password: bytes) -> str:
        reading, writing = os.pipe()
        pipes.append(reading)
        with os.fdopen(writing, "wb") as file:
            file.write(password + b"\n")
        return f"/dev/fd/{reading}"

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
            changed |= {"ANSIBLE_BECOME_PASSWORD_FILE": pipe(passwords.sudo.encode()), "ANSIBLE_BECOME_ASK_PASS": "0"}
        if passwords.ssh:
            changed |= {"ANSIBLE_CONNECTION_PASSWORD_FILE": pipe(passwords.ssh.encode()), "ANSIBLE_ASK_PASS": "0"}
        yield Handover(environment=changed, pipes=pipes)
    finally:
        for each in pipes:
            os.close(each)
