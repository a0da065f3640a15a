"""Reads what the node's own host name means on it. Read-only."""

from __future__ import annotations

import ipaddress
import socket
import threading
from typing import Any

from ansible.module_utils.ringmaster.core.blocks import without_block
from ansible.module_utils.ringmaster.core.disk import read
from ansible.module_utils.ringmaster.names.masked_lines import MASK, without_masked

# A name server that doesn't answer must not hold up the probe.
_SECONDS = 2.0


def look_names() -> dict[str, Any]:
    """Return `resolves_to`, `names` (canonical first), and the lines that give the name a loopback address.

    `resolves_to` is None where no answer came in time. `loopback_lines` are in force, `masked_lines` are our comments.
    """
    name = socket.gethostname()
    addresses, canonical = resolve(name)
    try:
        text = without_block(read("/etc/hosts") or "")
    except (OSError, ValueError):
        text = ""
    masked = [line[len(MASK) :] for line in text.splitlines() if line.startswith(MASK)]
    return {
        "resolves_to": addresses,
        "names": own_names(without_masked(text), name) or list(dict.fromkeys([canonical or name, name])),
        "loopback_lines": loopback_lines(text, name),
        "masked_lines": masked,
    }


def own_names(hosts: str, name: str) -> list[str]:
    """Return the names in those lines of `hosts` that have `name`, in their order, without localhost's."""
    names = [one for line in hosts.splitlines() for one in _names(line) if name in _names(line)]
    return [one for one in dict.fromkeys(names) if not _is_localhost(one)]


def loopback_lines(hosts: str, name: str) -> list[str]:
    """Return the lines that make `name` this machine's loopback; none for a machine named localhost."""
    if _is_localhost(name):
        return []
    return [line for line in hosts.splitlines() if name in _names(line) and _is_loopback(line.split()[0])]


def resolve(name: str) -> tuple[list[str] | None, str | None]:
    """Return a name's addresses, in the order programs get them, and its canonical name; None without an answer."""
    answer: list[tuple[list[str], str | None]] = []

    def ask() -> None:
        try:
            answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_CANONNAME)
        except OSError:
            answer.append(([], None))
            return
        answer.append((list(dict.fromkeys(str(one[4][0]) for one in answers)), answers[0][3] or None))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_SECONDS)
    return answer[0] if answer else (None, None)


def _names(line: str) -> list[str]:
    return line.partition("#")[0].split()[1:]


def _is_localhost(name: str) -> bool:
    return name in ("localhost4", "localhost6") or name.split(".")[0] == "localhost" or name.startswith("ip6-")


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
