"""Reads ufw's files, and writes the texts that they should have. Pure: texts in, texts out.

ufw keeps a rule as a line for itself (`### tuple ###`, with the comment in hexadecimal) and the iptables lines that it
means. Our rules are found by their comment: `ringmaster <node>` lets a node in, `ringmaster` alone lets SSH in.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from typing import Any, Optional

from ansible.module_utils.ringmaster.core.disk import text_of

DEFAULTS = "/etc/default/ufw"
CONF = "/etc/ufw/ufw.conf"
RULES = "/etc/ufw/user.rules"
RULES6 = "/etc/ufw/user6.rules"
PATHS = (DEFAULTS, CONF, RULES, RULES6)
MODES = ("disabled", "cluster_only", "keep")

Files = dict[str, Optional[str]]
"""The text of each of PATHS; None for a missing file."""
Peers = dict[str, list[str]]
"""The addresses of each other node, by its name."""

_POLICY = "DEFAULT_INPUT_POLICY"
_CHANGED = ((DEFAULTS, _POLICY), (CONF, "ENABLED"))  # the settings that we change, besides the rules
_INCOMING = {"ACCEPT": "allow", "DROP": "deny", "REJECT": "reject"}
_OURS = "ringmaster"
_TUPLE = "### tuple ### "
_BEGIN = "### RULES ###\n"
_END = "\n### END RULES ###\n"


def enabled(files: Files) -> bool:
    """Return whether ufw is switched on."""
    return _setting(files[CONF], "ENABLED").lower() == "yes"


def incoming(files: Files) -> str | None:
    """Return what happens to connections that no rule matches: allow, deny or reject."""
    return _INCOMING.get(_setting(files[DEFAULTS], _POLICY).upper())


def ipv6(files: Files) -> bool:
    """Return whether rules for IPv6 count; without them ufw lets nothing in by IPv6."""
    return _setting(files[DEFAULTS], "IPV6").lower() == "yes"


def opens_ssh(own: Files) -> bool:
    """Return whether SSH needs rules of ours: not where it works by the user's own, which may be strict on purpose."""
    return not (enabled(own) and incoming(own) in ("deny", "reject"))


def peers_let_in(files: Files) -> Peers:
    """Return the addresses that our rules let in, by node."""
    peers: Peers = {}
    for fields, comment in _our_tuples(files):
        _, _, node = comment.partition(" ")
        if node:
            peers.setdefault(node, []).append(fields[5])
    return {node: sorted(addresses) for node, addresses in peers.items()}


def ssh_ports(files: Files) -> list[int]:
    """Return the ports that our rules open for SSH."""
    return sorted(
        {int(fields[2]) for fields, comment in _our_tuples(files) if comment == _OURS and fields[2].isdigit()}
    )


def theirs(now: Files, entry: dict[str, Any] | None) -> Files:
    """Return the files as they would be without us: exactly as before, or with the user's changes since then."""
    own = {path: _without_ours(text) if path in (RULES, RULES6) else text for path, text in now.items()}
    if not entry or not entry["written"]:
        return own
    before, written = _texts(entry["before"]), entry["written"]
    if written["digest"] == digest(now):
        return before
    for path, name in _CHANGED:
        if _setting(own[path], name) == written[name] != _setting(before[path], name):
            own[path] = _with_setting(own[path], name, _setting(before[path], name))
    return own


def wanted(own: Files, mode: str, peers: Peers, ports: list[int]) -> Files:
    """Return the user's own files, changed as the mode asks; `ports` are those that sshd listens on.

    Raises:
        ValueError: ufw's files no longer have ufw's form.
    """
    files = dict(own)
    if mode == "disabled" and enabled(own):
        files[CONF] = _with_setting(own[CONF], "ENABLED", "no")
    if mode != "cluster_only":
        return files
    files[CONF] = _with_setting(own[CONF], "ENABLED", "yes")
    if incoming(own) not in ("deny", "reject"):
        files[DEFAULTS] = _with_setting(own[DEFAULTS], _POLICY, "DROP")
    for path, version in ((RULES, 4), (RULES6, 6)):
        if version == 4 or ipv6(own):
            rules = _ssh_rules(ports, version) if opens_ssh(own) else []
            files[path] = _with_rules(own[path], rules + _peer_rules(peers, version))
    return files


def record(files: Files) -> dict[str, str]:
    """Return what the manifest keeps of the files that we wrote: enough to see whether others have changed them."""
    return {"digest": digest(files), **{name: _setting(files[path], name) for path, name in _CHANGED}}


def digest(files: Files) -> str:
    """Return a hash of all files."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def _texts(states: dict[str, Any]) -> Files:
    return {path: text_of(state) if state else None for path, state in states.items()}


def _setting(text: str | None, name: str) -> str:
    """Return a shell variable's value as ufw reads it: the last one counts; empty if it isn't set."""
    values = re.findall(rf"^{name}=(.*)$", text or "", re.MULTILINE)
    return str(values[-1]).strip().strip("\"'") if values else ""


def _with_setting(text: str | None, name: str, value: str) -> str:
    line = f'{name}="{value}"' if name == _POLICY else f"{name}={value}"
    old = text or ""
    new, count = re.subn(rf"^{name}=.*$", line, old, flags=re.MULTILINE)
    if count:
        return new
    return f"{old}{line}\n" if not old or old.endswith("\n") else f"{old}\n{line}\n"


def _our_tuples(files: Files) -> list[tuple[list[str], str]]:
    """Return our rules: ufw's fields (action, protocol, port, to, port, from, direction) and the comment."""
    lines = ((files[RULES] or "") + (files[RULES6] or "")).splitlines()
    tuples = ((line[len(_TUPLE) :].split(), _comment(line)) for line in lines if line.startswith(_TUPLE))
    return [(fields, comment) for fields, comment in tuples if len(fields) > 6 and _is_ours(comment)]


def _comment(line: str) -> str:
    _, _, code = line.partition(" comment=")
    try:
        return bytes.fromhex(code.strip()).decode()
    except ValueError:
        return ""


def _is_ours(comment: str) -> bool:
    return comment == _OURS or comment.startswith(_OURS + " ")


def _without_ours(text: str | None) -> str | None:
    """Take out our rules, each with its iptables lines and the empty line above it."""
    if text is None:
        return None
    kept: list[str] = []
    dropping = False
    for line in text.splitlines(keepends=True):
        if line.startswith(_TUPLE):
            dropping = _is_ours(_comment(line))
            if dropping and kept and not kept[-1].strip():
                kept.pop()
        elif not line.startswith(("-A ufw-user-input ", "-A ufw6-user-input ")):
            dropping = False
        if not dropping:
            kept.append(line)
    return "".join(kept)


def _with_rules(text: str | None, rules: list[str]) -> str:
    """Put rules below the present ones: the user's own are matched first."""
    old = text or ""
    for mark, place in ((_END, old.find(_END)), (_BEGIN, old.find(_BEGIN) + len(_BEGIN))):
        if mark in old:  # files that ufw has never written have no end mark, and no rules
            return old[:place] + "".join(rules) + old[place:]
    raise ValueError(
        f"ufw's rules have no line '{_BEGIN.strip()}': `ufw --force reset` repairs that (it drops all rules)"
    )


def _ssh_rules(ports: list[int], version: int) -> list[str]:
    any_address, chain = ("0.0.0.0/0", "ufw-user-input") if version == 4 else ("::/0", "ufw6-user-input")
    return [
        _rule(
            f"allow tcp {port} {any_address} any {any_address} in",
            _OURS,
            f"-A {chain} -p tcp --dport {port} -j ACCEPT",
        )
        for port in sorted(set(ports))
    ]


def _peer_rules(peers: Peers, version: int) -> list[str]:
    any_address, chain = ("0.0.0.0/0", "ufw-user-input") if version == 4 else ("::/0", "ufw6-user-input")
    return [
        _rule(
            f"allow any any {any_address} any {address} in",
            f"{_OURS} {node}",
            f"-A {chain} -s {address} -j ACCEPT",
        )
        for node, addresses in sorted(peers.items())
        for address in sorted(set(addresses))
        if ipaddress.ip_address(address).version == version
    ]


def _rule(fields: str, comment: str, line: str) -> str:
    return f"\n{_TUPLE}{fields} comment={comment.encode().hex()}\n{line}\n"
