"""How a node is logged in at without OpenSSH: what OpenSSH would use, its host keys among it, for Fabric."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.base.errors import RingmasterError
from launcher.base.parallel import run_all
from launcher.inventory.hosts import Host
from launcher.ssh import known_hosts
from launcher.ssh.known_hosts import Key, Route, pinning_options

_LIMIT_S = 20.0


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
    """Ask OpenSSH what it would do for each host: so inventory and ssh_config mean the same here as for Ansible.

    Raises:
        RingmasterError: ssh can't make sense of a host's options.
    """
    options = {host.name: host.ssh.options(pinning_options(pins)) for host in hosts}
    commands = [("ssh", "-G", *options[host.name], "--", host.address) for host in hosts]
    found = {}
    for host, done in zip(hosts, run_all(commands, limit_s=_LIMIT_S), strict=True):
        if done.code != 0:
            said = done.err.strip().splitlines() or ["no reason given"]
            raise RingmasterError(f"{host.name}: ssh refuses its options: {said[-1]}; mend ansible_ssh_common_args")
        route = known_hosts.parse_route(done.out, pins)
        found[host.name] = parse_login(done.out, route, known_hosts.trusted(route), _jump_options(options[host.name]))
    return found


def parse_login(text: str, route: Route, keys: Sequence[Key], jump_options: Sequence[str]) -> Login:
    """Read what `ssh -G` prints.

    Args:
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
        # Filled in here: of what ssh would put there Fabric knows the address alone, and takes port 22.
        proxy=_proxy({name: given[0] for name, given in values.items()}, jump_options)
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
    # As ssh itself does it: an ssh to the last jump host, by way of those before it.
    *before, last = jumps.split(",")
    hops = ("-J", ",".join(before)) if before else ()
    return shlex.join(("ssh", *jump_options, "-o", "BatchMode=yes", *hops, "-W", "[%h]:%p", last))


def _jump_options(options: Sequence[str]) -> tuple[str, ...]:
    """Of a node's ssh options those that hold for the jump host too: the configuration file, the host keys' files."""
    found: list[str] = []
    for number, word in enumerate(options[:-1]):
        following = options[number + 1]
        of_keys = following.startswith(("GlobalKnownHostsFile", "UserKnownHostsFile", "StrictHostKeyChecking"))
        if word == "-F" or (word == "-o" and of_keys):
            found += [word, following]
    return tuple(found)
