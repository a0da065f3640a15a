"""Ansible Vault's passwords: found where Ansible's own programs look for them, and read once for a whole command."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from launcher.base.errors import RingmasterError
from launcher.inventory.strict_ansible import strict_ansible

_PROMPTS = ("prompt", "prompt_ask_vault_pass")
"""What stands for a file where Ansible asks for the password instead."""
_LOCKED = re.compile(r"no vault secrets|vault password must be specified")


@dataclass(frozen=True, kw_only=True)
class VaultPasswords:
    """The passwords that are known; they are shown by no message and no `repr`."""

    listed: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    """Those of Ansible's list of identities, and the one that was asked for: the vault's id, and the password."""
    of_file: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    """The one of Ansible's password file, if there is such a file, in the same form."""
    problems: tuple[str, ...] = ()
    """Which of them can't be read, and why. That is an error only once something can't be decrypted."""

    @property
    def all(self) -> tuple[tuple[str, bytes], ...]:
        """Return every password, in the order in which Ansible tries them."""
        return (*self.listed, *self.of_file)


@dataclass(kw_only=True)
class Place:
    """What Ansible works at: a file, or a host's variable. An error of its own names neither."""

    text: str = ""


def find_passwords(ask: Callable[[str, str], str], *, wanted: bool = False) -> VaultPasswords:
    """Return the passwords that Ansible's settings name: by the environment, or by the ansible.cfg that counts here.

    Scripts are run, and what must be asked for is asked for: by `dev@prompt` in the list, or ANSIBLE_ASK_VAULT_PASS.

    Args:
        ask: shows a question on the terminal, and returns the answer; its second argument says which setting wants
            that, and is empty if the user does.
        wanted: the user wants to be asked for the password, whatever the settings say.
    """
    with strict_ansible():
        from ansible import constants
        from ansible.errors import AnsibleError
        from ansible.parsing.dataloader import DataLoader
        from ansible.parsing.vault import VaultSecret, get_file_vault_secret

        setting = constants.config.get_config_value_and_origin
        default = str(setting("DEFAULT_VAULT_IDENTITY")[0])
        loader = DataLoader()
        found: list[tuple[str, bytes]] = []
        problems: list[str] = []

        def read(name: str, source: str, asked_by: str = "") -> list[tuple[str, bytes]]:
            if source in _PROMPTS:
                password = os.fsencode(ask(f"Vault password ({name or default}): ", asked_by))
            else:
                try:
                    secret = get_file_vault_secret(filename=source, vault_id=name or None, loader=loader)
                    secret.load()
                    password = secret.bytes
                except AnsibleError as error:
                    problems.append(" ".join(str(error).split()))
                    return []
            found.append((name or default, password))
            # One password's file may be encrypted with a password before it.
            loader.set_vault_secrets([(each, VaultSecret(value)) for each, value in found])
            return found[-1:]

        identities, origin = setting("DEFAULT_VAULT_IDENTITY_LIST")
        listed: list[tuple[str, bytes]] = []
        for each in map(str, identities):
            listed += read(*_parted(each), _setting_at(origin, "vault_identity_list", f" ({each})"))
        file, _ = setting("DEFAULT_VAULT_PASSWORD_FILE")
        of_file = read("", str(file)) if file else []
        always, origin = setting("DEFAULT_ASK_VAULT_PASS")
        if wanted or always:
            listed += read("", _PROMPTS[0], "" if wanted else _setting_at(origin, "ask_vault_pass"))
        return VaultPasswords(listed=tuple(listed), of_file=tuple(of_file), problems=tuple(problems))


def _setting_at(origin: str, key: str, more: str = "") -> str:
    """Return a setting's name as its user knows it: the variable, or the key and the file."""
    kind, _, variable = origin.partition(": ")
    return (variable if kind == "env" else f"{key} in {origin}") + more


def _parted(identity: str) -> tuple[str, str]:
    """Split `dev@file`; an id may be missing."""
    name, at, source = identity.partition("@")
    return (name, source) if at else ("", identity)


def loader_with(passwords: VaultPasswords, place: Place) -> Any:
    """Return Ansible's loader with these passwords; `place` follows the files that it reads."""
    from ansible.parsing.dataloader import DataLoader
    from ansible.parsing.vault import VaultSecret, VaultSecretsContext

    class Loader(DataLoader):  # type: ignore[misc]  # Ansible has no types
        def load_from_file(self, file_name: str, *args: Any, **more: Any) -> Any:
            place.text = str(file_name)
            content = super().load_from_file(file_name, *args, **more)
            place.text = ""
            return content

    secrets = [(name, VaultSecret(password)) for name, password in passwords.all]
    loader = Loader()
    loader.set_vault_secrets(secrets)  # for files that are encrypted as a whole
    context = VaultSecretsContext.current(optional=True)  # for single values
    if context is None:
        VaultSecretsContext.initialize(VaultSecretsContext(secrets))
    else:
        context.secrets = secrets
    return loader


def is_locked(ansible_says: str) -> bool:
    """Return whether Ansible says that a password is missing, or none of them fits."""
    return _LOCKED.search(ansible_says) is not None


def refuse_locked(where: str, ansible_says: str, passwords: VaultPasswords) -> None:
    """Say how to give a Vault password, if that is what Ansible lacked.

    Raises:
        RingmasterError: it was.
    """
    if not is_locked(ansible_says):
        return
    unread = "".join(f"; {problem.rstrip('.')}" for problem in passwords.problems)
    if not passwords.all:
        raise RingmasterError(
            f"{where}: encrypted with Ansible Vault, and there is no password for it: ASK=vault asks for it, "
            f"ANSIBLE_VAULT_PASSWORD_FILE=<file> gives it (docs/provision.md){unread}"
        )
    ids = ", ".join(dict.fromkeys(name for name, _ in passwords.all))
    raise RingmasterError(
        f"{where}: encrypted with Ansible Vault, and the password given (id {ids}) doesn't open it: see ASK=vault, "
        f"ANSIBLE_VAULT_PASSWORD_FILE and ANSIBLE_VAULT_IDENTITY_LIST (docs/provision.md){unread}"
    )
