"""What OpenSSH would use to log in to a node, its host keys included, so that Fabric can do the same."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.inventory.hosts import Host
from launcher.ssh import known_hosts
from launcher.ssh.known_hosts import Key, Route, pinning_options

_JUMP_OPTIONS = ("-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=6")
"""A jump host that dies without a word is noticed in 30 s."""


@dataclass(frozen=True, kw_only=True)
class Login:
    """Everything a connection to one node needs."""

    route: Route
    user: str
    key_files: tuple[str, ...]
    use_agent: bool
    proxy: str
    """A command whose standard streams lead to the node's sshd; empty: it is reached directly."""
    keys: tuple[Key, ...]
    """The host keys that are trusted; any other is refused."""


def logins(hosts: Sequence[Host], pins: Path) -> dict[str, Login]:
    """Ask OpenSSH what it would do for each host, so that inventory and ssh_config mean the same as for Ansible.

    Raises:
        RingmasterError: ssh can't make sense of a host's options.
    """
    options = {host.name: host.ssh.options(pinning_options(pins)) for host in hosts}
    login_of = {}
    for name, text in known_hosts.effective_options(hosts, options).items():
        route = known_hosts.parse_route(text, pins)
        login_of[name] = parse_login(text, route, known_hosts.trusted(route), _jump_options(options[name]))
    return login_of


def parse_login(text: str, route: Route, keys: Sequence[Key], jump_options: Sequence[str]) -> Login:
    """Read from what `ssh -G` prints how a host is logged in to.

    Args:
        keys: the host keys to trust.
        jump_options: the options for an ssh to a jump host.
    """
    values: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        values.setdefault(name, []).append(value)
    files = [Path(value).expanduser() for value in values.get("identityfile", [])]
    agent = values.get("identityagent", ["SSH_AUTH_SOCK"])[0]
    return Login(
        route=route,
        user=values["user"][0],
        key_files=tuple(str(path) for path in files if path.is_file()),
        use_agent=values.get("identitiesonly", ["no"])[0] == "no" and agent != "none",
        # Filled in here: Fabric would know only the address of what ssh puts there, and would take port 22.
        proxy=_proxy({name: each[0] for name, each in values.items()}, jump_options)
        .replace("%h", route.address)
        .replace("%p", str(route.port))
        .replace("%r", values["user"][0]),
        keys=tuple(keys),
    )


def _proxy(values: Mapping[str, str], jump_options: Sequence[str]) -> str:
    command = values.get("proxycommand", "none")
    if command != "none":
        return command
    jumps = values.get("proxyjump", "none")
    if jumps == "none":
        return ""
    # As ssh itself does it: an ssh to the last jump host, through those before it.
    *before, last = jumps.split(",")
    hops = ("-J", ",".join(before)) if before else ()
    return shlex.join(("ssh", *jump_options, *_JUMP_OPTIONS, *hops, "-W", "[%h]:%p", last))


def _jump_options(options: Sequence[str]) -> tuple[str, ...]:
    """Return those of a node's ssh options that hold for its jump host too: configuration and host keys' files."""
    kept: list[str] = []
    for number, word in enumerate(options[:-1]):
        following = options[number + 1]
        of_keys = following.startswith(("GlobalKnownHostsFile", "UserKnownHostsFile", "StrictHostKeyChecking"))
        if word == "-F" or (word == "-o" and of_keys):
            kept += [word, following]
    return tuple(kept)
