"""How one host of the inventory is reached: Ansible's connection variables, and the ssh options they stand for."""

import getopt
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_FLAGS = "1246ab:c:e:fgi:kl:m:no:p:qstvxAB:CD:E:F:GI:J:KL:MNO:P:Q:R:S:TVw:W:XYy"
"""Those of ssh, in getopt's form: with a colon where a value follows."""
_CLASHING = frozenset(
    {
        *("-M", "-S"),  # share a connection: ours is held for one job; a second -M makes ssh ask before each use of it
        *("-q", "-E", "-y"),  # keep ssh's words from us, which say why a node refuses us
        *("-f", "-n"),  # take the input away: with its end, the connection would end at once
    }
)
_SSH = frozenset({"ssh", "smart", "ansible.builtin.ssh"})
_NAMES = {
    "connection": ("ansible_connection",),
    "port": ("ansible_ssh_port", "ansible_port"),
    "user": ("ansible_ssh_user", "ansible_user"),
    "key_file": ("ansible_ssh_private_key_file", "ansible_private_key_file"),
    "args": ("ansible_ssh_args",),
    "common_args": ("ansible_ssh_common_args",),
    "extra_args": ("ansible_ssh_extra_args",),
    "password": ("ansible_ssh_password", "ansible_ssh_pass", "ansible_password"),
}
"""Where an inventory gives several, the first here counts, as with Ansible, whose documentation has it last."""


@dataclass(frozen=True, kw_only=True)
class SshOptions:
    """The connection variables that the inventory sets for a host; an empty one has Ansible's default."""

    over_ssh: bool = True
    """False for this machine itself and for other connection plugins."""
    port: int | None = None
    user: str = ""
    key_file: str = ""
    args: str = ""
    common_args: str = ""
    extra_args: str | None = None
    has_password: bool = False
    """Whether there is a password to log in with."""
    password: str = field(default="", repr=False)
    """It; empty also where no password for its encryption is known."""

    def options(self, extra_args: str) -> tuple[str, ...]:
        """Return the options that Ansible gives to ssh, in Ansible's order: ssh takes the first value of each.

        Flags that our own use of ssh can't do with are left out; Ansible's ssh still gets them.

        Args:
            extra_args: takes the place of `ansible_ssh_extra_args` where the inventory doesn't set it.
        """
        words = []
        if self.port is not None:
            words += ["-o", f"Port={self.port}"]
        if self.key_file:
            words += ["-o", f'IdentityFile="{Path(self.key_file).expanduser()}"']
        if self.user:
            words += ["-o", f'User="{self.user}"']
        more = (*shlex.split(self.common_args), *shlex.split(self.extra_args or extra_args))
        return tuple(_without_clashes([*shlex.split(self.args), *words, *more]))


def _without_clashes(words: list[str]) -> list[str]:
    """Return ssh's words without the flags that clash with ours, which stand before them and can't overrule a flag."""
    try:
        flags, rest = getopt.getopt(words, _FLAGS)
    except getopt.GetoptError:
        return words  # ssh says what is wrong
    kept = [(flag, value) for flag, value in flags if flag not in _CLASHING]
    return [word for flag, value in kept for word in ((flag, value) if f"{flag[1]}:" in _FLAGS else (flag,))] + rest


def from_variables(
    variables: Mapping[str, Any], render: Callable[[Any], Any], unlock: Callable[[Any], Any]
) -> SshOptions:
    """Return the options that a host's connection variables stand for.

    Args:
        render: resolves their templates.
        unlock: does so too, and returns None for what stays encrypted.

    Raises:
        ValueError: a value can't be right; the message names the variable.
    """

    def content(name: str, read: Callable[[Any], Any]) -> Any:
        value = next((variables[each] for each in _NAMES[name] if variables.get(each) is not None), "")
        return read(value)

    def text(name: str) -> str:
        value = content(name, render)
        return "" if value is None else str(value)

    for name in ("args", "common_args", "extra_args"):
        try:
            shlex.split(text(name))
        except ValueError as error:
            raise ValueError(f"{_NAMES[name][0]} has a quote that is not closed: {text(name)}") from error
    port = text("port")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"ansible_port is {port!r}; must be a whole number from 1 to 65535")
    password = content("password", unlock)  # None: it stays encrypted
    return SshOptions(
        over_ssh=(text("connection") or "ssh") in _SSH,
        port=int(port) if port else None,
        user=text("user"),
        key_file=text("key_file"),
        args=text("args"),
        common_args=text("common_args"),
        extra_args=text("extra_args") or None,
        has_password=password is None or str(password) != "",
        password="" if password is None else str(password),
    )
