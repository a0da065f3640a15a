"""Reads the firewall from files alone, without starting a program. Read-only; what can't be read is None."""

from __future__ import annotations

import os
from typing import Any

from ansible.module_utils.ringmaster.core.disk import read
from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.core.probe import LISTEN, firewall, other_firewall, socket_tables, sockets
from ansible.module_utils.ringmaster.firewall.rollback import is_pending
from ansible.module_utils.ringmaster.firewall.rules import (
    enabled,
    incoming,
    ipv6,
    opens_ssh,
    peers_let_in,
    ssh_ports,
    theirs,
)
from ansible.module_utils.ringmaster.firewall.ufw import KIND, is_installed, read_files


def look_firewall() -> dict[str, Any]:
    """Return ufw's settings, which rules are ours, and where sshd listens."""
    files = read_files()
    entry = next((one for one in Manifest(lock=False).entries if one["kind"] == KIND), None)
    return {
        "installed": is_installed(),
        "enabled": is_installed() and enabled(files),
        "incoming": incoming(files),
        "ipv6": ipv6(files) or not is_installed(),  # ufw's default
        "ours": peers_let_in(files),
        "ssh": ssh_ports(files),
        "opens_ssh": opens_ssh(theirs(files, entry)),
        "ports": sshd_ports(),
        "rollback_pending": is_pending(),
        "other": other_firewall() or None,
        "filters": firewall(),
    }


def sshd_ports(proc: str = "/proc") -> list[int]:
    """Return the TCP ports on which this machine's sshd listens for others, not just on loopback."""
    listening = listeners(socket_tables(proc))
    root = _root(f"{proc}/self")
    ports = set()
    for process in filter(str.isdigit, os.listdir(proc)):
        folder = f"{proc}/{process}"
        if _quietly(f"{folder}/comm").strip() == "sshd" and _is_listener(folder) and _root(folder) == root:
            ports |= {listening[inode] for inode in _sockets(folder) if inode in listening}
    return sorted(ports)


def listeners(tables: str) -> dict[str, int]:
    """Return the port of each listening socket in the kernel's tables, by inode, without those on loopback."""
    return {one.inode: one.port for one in sockets(tables) if one.state == LISTEN and not _is_loopback(one.address)}


def _is_loopback(address: str) -> bool:
    """Return whether an address is loopback's.

    The kernel prints words of 32 bits with the lowest byte first (on the processors that GPUs are sold with).
    """
    mapped = address.startswith("0" * 16 + "FFFF0000")
    return address == "0" * 24 + "01000000" or ((len(address) == 8 or mapped) and address.endswith("7F"))


def _is_listener(folder: str) -> bool:
    """Return whether a process of sshd is the listener.

    A session listens too, for ports that a user forwards: its title names the user.
    """
    title = _quietly(f"{folder}/cmdline")
    return not title.startswith("sshd: ") or "[listener]" in title


def _root(folder: str) -> tuple[int, int] | None:
    """Return what distinguishes a container's process (on the host's network, say) from this machine's."""
    try:
        status = os.stat(f"{folder}/root/")
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _sockets(folder: str) -> list[str]:
    try:
        names = [os.readlink(f"{folder}/fd/{one}") for one in os.listdir(f"{folder}/fd")]
    except OSError:
        return []
    return [name[len("socket:[") : -1] for name in names if name.startswith("socket:[")]


def _quietly(path: str) -> str:
    try:
        return read(path) or ""
    except OSError:
        return ""
