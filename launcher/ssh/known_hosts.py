"""Host keys: those that ssh knows, those that a host shows, and the file where they are pinned."""

import base64
import binascii
import fcntl
import hashlib
import os
import re
import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.base import atomic_file
from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.parallel import Done, run_all
from launcher.inventory.hosts import Host
from launcher.ssh.admission import admit

SCAN_S = 5
"""How long a host has to show its keys."""
_KINDS = ("ed25519", "ecdsa,rsa")
"""The kinds that are asked for, the second ones where there is none of the first: each takes a connection without a
login, and firewalls and sshds count those (docs/provision.md)."""
_LIMIT_S = 20.0


@dataclass(frozen=True, kw_only=True)
class Route:
    """How ssh would reach a host, after its configuration files."""

    address: str
    port: int
    name: str
    """The name of the host's key in known_hosts."""
    files: tuple[Path, ...]
    """The known_hosts files that exist, the user's and the global ones."""
    direct: bool
    """False behind a jump host or proxy command: such a host can't be asked for its keys."""
    uses_pins: bool
    """Whether the file where we pin is one of those that ssh reads."""
    takes_ed25519: bool = True
    """Whether ssh would accept such a key there."""


@dataclass(frozen=True, kw_only=True, order=True)
class Key:
    """A host's public key as known_hosts has it."""

    kind: str
    blob: str

    @property
    def fingerprint(self) -> str:
        """The form in which ssh and consoles show it."""
        return fingerprint(self.blob)

    @property
    def bytes(self) -> bytes:
        """The key in SSH's wire format."""
        return base64.b64decode(self.blob)


def fingerprint(blob: str) -> str:
    """Return the form in which ssh and consoles show a key, `SHA256:…`; empty if `blob` is no key."""
    try:
        digest = hashlib.sha256(base64.b64decode(blob, validate=True)).digest()
    except binascii.Error:
        return ""
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def routes(hosts: Sequence[Host], options: Mapping[str, Sequence[str]], pins: Path) -> dict[str, Route]:
    """Ask ssh how it would reach each host.

    Raises:
        RingmasterError: ssh can't make sense of the options.
    """
    return {name: parse_route(text, pins) for name, text in effective_options(hosts, options).items()}


def effective_options(hosts: Sequence[Host], options: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return what `ssh -G` prints for each host: everything it would use, after its configuration files.

    Raises:
        RingmasterError: ssh can't make sense of the options.
    """
    commands = [("ssh", "-G", *options[host.name], "--", host.address) for host in hosts]
    texts = {}
    for host, done in zip(hosts, run_all(commands, limit_s=_LIMIT_S), strict=True):
        if done.code != 0:
            stderr = done.err.strip().splitlines() or ["no reason given"]
            raise RingmasterError(f"{host.name}: ssh refuses its options: {stderr[-1]}; fix ansible_ssh_common_args")
        texts[host.name] = done.out
    return texts


def parse_route(text: str, pins: Path) -> Route:
    """Read from what `ssh -G` prints how a host is reached."""
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
        takes_ed25519="ssh-ed25519" in values.get("hostkeyalgorithms", "ssh-ed25519").split(","),
    )


def known_name(address: str, port: int) -> str:
    """Return how known_hosts names a host."""
    return address if port == 22 else f"[{address}]:{port}"


def _split_paths(listed: str) -> tuple[Path, ...]:
    """Return the paths that exist; ssh lists them side by side and unquoted, also those with spaces."""
    words, paths = listed.split(" "), []
    while words:
        for end in range(len(words), 0, -1):
            path = Path(" ".join(words[:end])).expanduser()
            if words[0] and path.is_file():
                paths.append(path)
                break
        else:
            end = 1
        words = words[end:]
    return tuple(paths)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The line of a known_hosts file for a host."""

    path: Path
    line: int
    marker: str
    """`@revoked`, `@cert-authority`, or empty for an ordinary key."""
    key: Key


def entries(route: Route) -> list[Entry]:
    """Return what the known_hosts files say of a host; ssh-keygen reads them, so hashed names and patterns count."""
    commands = [("ssh-keygen", "-F", route.name, "-f", str(path)) for path in route.files]
    lines = []
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
                lines.append(Entry(path=path, line=line, marker=marker, key=Key(kind=words[1], blob=words[2])))
    return lines


def known(route: Route) -> list[tuple[Path, int, Key]]:
    """Return every key that ssh already knows of a host: file, line number, key."""
    return [(entry.path, entry.line, entry.key) for entry in entries(route)]


def trusted(route: Route) -> list[Key]:
    """Return the keys that a host may show."""
    lines = entries(route)
    revoked = {entry.key for entry in lines if entry.marker == "@revoked"}
    return list(dict.fromkeys(entry.key for entry in lines if not entry.marker and entry.key not in revoked))


def scan(chosen: Mapping[str, Route]) -> dict[str, list[Key]]:
    """Ask hosts for their keys of the best kind; a host that doesn't answer has none."""

    def attempt(route: Route, over: threading.Event) -> Done:
        for kinds in _KINDS[0 if route.takes_ed25519 else 1 :]:
            command = ("ssh-keyscan", "-T", str(SCAN_S), "-t", kinds, "-p", str(route.port), "--", route.address)
            done = run_all([command], limit_s=_LIMIT_S, over=over)[0]
            if parse_scan(done.out) or turned_away(done):
                break
        return done

    def turned_away(done: Done) -> bool:
        return not parse_scan(done.out) and re.search(r"Connection (?:closed|reset)", done.err) is not None

    answers = admit(list(chosen.values()), attempt, turned_away)
    return {name: parse_scan(done.out) for name, done in zip(chosen, answers, strict=True)}


def parse_scan(text: str) -> list[Key]:
    """Read what ssh-keyscan prints: each key once, ed25519 first."""
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    keys = {Key(kind=row[1], blob=row[2]) for row in rows if len(row) == 3 and fingerprint(row[2])}
    return sorted(keys, key=lambda key: ("ed25519" not in key.kind, key))


def pin(path: Path, entries: Sequence[tuple[str, Key]]) -> None:
    """Add (name, key) entries to a known_hosts file in one step, except those that it already has.

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
    """Return the options that make ssh check strictly, with `pins` in addition to the user's and the system's files.

    inventory/group_vars/nodes.yml has the same ones, for those who call ansible-playbook directly. `pins` is a *global*
    file, because a user's own `ssh -F` or UserKnownHostsFile must go on working.
    """
    files = f'GlobalKnownHostsFile=/etc/ssh/ssh_known_hosts "{pins}"'
    return f"-o StrictHostKeyChecking=yes -o {shlex.quote(files)}"
