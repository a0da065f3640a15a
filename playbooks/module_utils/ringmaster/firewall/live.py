"""Reads what the kernel filters now, which may differ from ufw's files. Read-only."""

from __future__ import annotations

import ipaddress
import os

from ansible.module_utils.ringmaster.firewall.rollback import is_pending
from ansible.module_utils.ringmaster.firewall.rules import Peers, ipv6
from ansible.module_utils.ringmaster.firewall.ufw import is_installed, read_files, run

STARTED_AT_BOOT = "/etc/systemd/system/multi-user.target.wants/ufw.service"


def problems(mode: str, peers: Peers) -> list[str]:
    """Return how the running firewall differs from what the mode asks for, each difference with its remedy."""
    differences = ["a change of the firewall isn't confirmed yet: provision again"] if is_pending() else []
    if mode == "keep":
        return differences
    active = is_installed() and "Status: active" in run("ufw", "status")
    if mode == "disabled":
        return [*differences, "ufw is active: provision again"] if active else differences
    if not active:
        return [*differences, "ufw isn't active: provision again"]
    if not os.path.lexists(STARTED_AT_BOOT):
        differences.append("ufw won't be started at the next boot: systemctl enable ufw")
    closed = set(not_let_in(run("iptables", "-S"), peers, 4))
    if ipv6(read_files()) and os.path.exists("/proc/sys/net/ipv6"):
        closed |= set(not_let_in(run("ip6tables", "-S"), peers, 6))
    if closed:
        differences.append(f"the running firewall doesn't let in {', '.join(sorted(closed))}: run `ufw reload` there")
    return differences


def not_let_in(rules: str, peers: Peers, version: int) -> list[str]:
    """Return what is missing in iptables' own list: addresses of peers, and the policy for all others."""
    lines = set(rules.splitlines())
    chain, length = ("ufw-user-input", 32) if version == 4 else ("ufw6-user-input", 128)
    missing = [
        f"{node} ({address})"
        for node, addresses in peers.items()
        for address in addresses
        if ipaddress.ip_address(address).version == version
        and f"-A {chain} -s {address}/{length} -j ACCEPT" not in lines
    ]
    # Everyone is let in. It is reported like the others because the remedy is the same.
    return missing if "-P INPUT DROP" in lines else [*missing, f"the deny-by-default of IPv{version}"]
