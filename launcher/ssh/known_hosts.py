"""Host keys: what ssh knows of a host, what the host shows, and the file where both are pinned."""

import base64
import binascii
import fcntl
import hashlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.base import atomic_file
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.parallel import run_all
from launcher.inventory.hosts import Host

SCAN_S = 5
_LIMIT_S = 20.0


@dataclass(frozen=True, kw_only=True)
class Route:
    """What ssh would use for a host, after its configuration files."""

    address: str
    port: int
    name: str
    """The name under which the host's key stands in known_hosts."""
    files: tuple[Path, ...]
    """The known_hosts files that are there, the user's and the global ones."""
    direct: bool
    """False behind a jump host or proxy command: such a host can't be asked for its keys."""
    uses_pins: bool
    """Whether the file where we pin is among those ssh reads."""


@dataclass(frozen=True, kw_only=True, order=True)
class Key:
    """A host's public key as it stands in known_hosts."""

    kind: str
    blob: str

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.blob)

    @property
    def bytes(self) -> bytes:
        return base64.b64decode(self.blob)


def fingerprint(blob: str) -> str:
    """The form in which ssh and consoles show a key: `SHA256:…`; empty for what is no key."""
    try:
        digest = hashlib.sha256(base64.b64decode(blob, validate=True)).digest()
    except binascii.Error:
        return ""
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def routes(hosts: Sequence[Host], options: Mapping[str, Sequence[str]], pins: Path) -> dict[str, Route]:
    """Ask ssh what it would use for each host.

    Raises:
        RingmasterError: ssh can't make sense of the options.
    """
    commands = [("ssh", "-G", *options[host.name], "--", host.address) for host in hosts]
    found = {}
    for host, done in zip(hosts, run_all(commands, limit_s=_LIMIT_S), strict=True):
        if done.code != 0:
            said = done.err.strip().splitlines() or ["no reason given"]
            raise RingmasterError(f"{host.name}: ssh refuses its options: {said[-1]}; mend ansible_ssh_common_args")
        found[host.name] = parse_route(done.out, pins)
    return found


def parse_route(text: str, pins: Path) -> Route:
    """Read what `ssh -G` prints."""
    values = dict(line.partition(" ")[::2] for line in text.splitlines())
    address, port = values["hostname"], int(values["port"])
    alias = values.get("hostkeyalias", "none")
    listed = f"{values.get('userknownhostsfile', '')} {values.get('globalknownhostsfile', '')}"
    return Route(
        address=address,
        port=port,
        name=alias if alias != "none" else known_name(address, port),
        files=_split_paths(listed),
        direct=all(values.get(each, "none") == "none" for each in ("proxyjump", "proxycommand")),
        uses_pins=f" {pins} " in f" {listed} ",
    )


def known_name(address: str, port: int) -> str:
    """How known_hosts names a host."""
    return address if port == 22 else f"[{address}]:{port}"


def _split_paths(listed: str) -> tuple[Path, ...]:
    """Those paths that are there; ssh lists them side by side and unquoted, also those with spaces."""
    words, found = listed.split(" "), []
    while words:
        for end in range(len(words), 0, -1):
            path = Path(" ".join(words[:end])).expanduser()
            if words[0] and path.is_file():
                found.append(path)
                break
        else:
            end = 1
        words = words[end:]
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A line of a known_hosts file that is about a host."""

    path: Path
    line: int
    marker: str
    """`@revoked`, `@cert-authority`, or empty for an ordinary key."""
    key: Key


def entries(route: Route) -> list[Entry]:
    """What the known_hosts files say of a host; ssh-keygen reads them, so hashed names and patterns count too."""
    commands = [("ssh-keygen", "-F", route.name, "-f", str(path)) for path in route.files]
    found = []
    for path, done in zip(route.files, run_all(commands, limit_s=_LIMIT_S), strict=True):
        line = 0
        for text in done.out.splitlines():
            place = re.match(r"# Host .* found: line (\d+)", text)
            if place:
                line = int(place[1])
                continue
            marker = text.split()[0] if text.startswith("@") else ""
            words = text.removeprefix(marker).split()
            if len(words) >= 3:
                found.append(Entry(path=path, line=line, marker=marker, key=Key(kind=words[1], blob=words[2])))
    return found


def known(route: Route) -> list[tuple[Path, int, Key]]:
    """The keys that ssh knows of a host already: file, line number, key."""
    return [(entry.path, entry.line, entry.key) for entry in entries(route)]


def trusted(route: Route) -> list[Key]:
    """The keys with which a host may show itself."""
    found = entries(route)
    revoked = {entry.key for entry in found if entry.marker == "@revoked"}
    return list(dict.fromkeys(entry.key for entry in found if not entry.marker and entry.key not in revoked))


def scan(chosen: Mapping[str, Route]) -> dict[str, list[Key]]:
    """Ask hosts for their keys, all at once; a host that doesn't answer has none."""
    commands = [
        ("ssh-keyscan", "-T", str(SCAN_S), "-p", str(route.port), "--", route.address) for route in chosen.values()
    ]
    answers = run_all(commands, limit_s=_LIMIT_S)
    return {name: parse_scan(done.out) for name, done in zip(chosen, answers, strict=True)}


def parse_scan(text: str) -> list[Key]:
    """Read what ssh-keyscan prints; each key once, ed25519 first."""
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    keys = {Key(kind=row[1], blob=row[2]) for row in rows if len(row) == 3 and fingerprint(row[2])}
    return sorted(keys, key=lambda key: ("ed25519" not in key.kind, key))


def pin(path: Path, entries: Sequence[tuple[str, Key]]) -> None:
    """Add (name, key) entries to a known_hosts file, in one step; those that stand there already are left.

    Raises:
        RingmasterError: the file can't be written.
    """
    path = path.resolve()
    try:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # two runs at once
            before = path.read_text(encoding="utf-8") if path.exists() else ""
            lines = before.splitlines()
            for name, key in entries:
                line = f"{name} {key.kind} {key.blob}"
                if line not in lines:
                    lines.append(line)
            atomic_file.write(path, "".join(f"{line}\n" for line in lines))
        finally:
            os.close(folder)
    except OSError as error:
        raise RingmasterError(
            f"{path}: the host keys can't be pinned: {error.strerror}", exit_code=ExitCode.NOT_STARTED
        ) from error


def pinning_options(pins: Path) -> str:
    """The ssh options that make ssh check strictly, with `pins` besides the user's and the system's files.

    The same stands in inventory/group_vars/nodes.yml, for whoever calls ansible-playbook directly. It is the *global*
    file, because a user's own `ssh -F` or UserKnownHostsFile must go on working.
    """
    files = f'GlobalKnownHostsFile=/etc/ssh/ssh_known_hosts "{pins}"'
    return f"-o StrictHostKeyChecking=yes -o {shlex.quote(files)}"
