"""The passwords of one command."""

from dataclasses import dataclass, field

from launcher.inventory.vault import VaultPasswords


@dataclass(frozen=True, kw_only=True)
class Passwords:
    """They are found or asked for once, and shown by no message and no `repr`."""

    vault: VaultPasswords = field(default_factory=VaultPasswords)
    sudo: str = field(default="", repr=False)
    """For all nodes; empty: none was asked for."""
    ssh: str = field(default="", repr=False)
    """For all nodes; empty: none was asked for."""
