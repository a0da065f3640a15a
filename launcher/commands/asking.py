"""ASK: passwords that are asked for once on the terminal, before anything starts, and kept in this process's memory."""

import getpass
import sys
from collections.abc import Collection

from launcher.base.errors import RingmasterError

SUDO, SSH, VAULT = "sudo", "ssh", "vault"
_QUESTIONS = {SUDO: "sudo password on the nodes: ", SSH: "ssh password of the nodes: "}
_UNATTENDED = {
    SUDO: "ansible_become_password in a file that Ansible Vault encrypts gives it unattended",
    SSH: "ansible_password in a file that Ansible Vault encrypts gives it unattended",
    VAULT: "ANSIBLE_VAULT_PASSWORD_FILE=<file> gives it unattended",
}


def parse_ask(text: str, allowed: Collection[str]) -> frozenset[str]:
    """Return which passwords ASK wants to be asked for: names with commas between.

    Args:
        allowed: those that the verb has a use for.

    Raises:
        RingmasterError: there is no such password, or the verb needs none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in _UNATTENDED:
            raise RingmasterError(f"ASK={text}: must be of {', '.join(_UNATTENDED)}, with commas between")
        if name not in allowed:
            raise RingmasterError(f"ASK={text}: this target has no use for {name}; it may ask for {', '.join(allowed)}")
    return frozenset(names)


def ask_password(name: str, question: str = "", asked_by: str = "") -> str:
    """Ask for a password on the terminal, without showing what is typed.

    Args:
        name: which one, as ASK calls it.
        asked_by: what wants it to be asked for, where that isn't ASK.

    Raises:
        RingmasterError: nobody can be asked, or nothing was typed.
    """
    wanted = asked_by or f"ASK={name}"
    if sys.stdin is None or not sys.stdin.isatty():
        raise RingmasterError(
            f"{wanted}: there is no terminal to ask on; {_UNATTENDED[name]} (docs/provision.md, Passwords)"
        )
    try:
        password = getpass.getpass(question or _QUESTIONS[name])
    except EOFError:
        password = ""
    if not password:
        raise RingmasterError(f"{wanted}: no password was typed")
    return password
