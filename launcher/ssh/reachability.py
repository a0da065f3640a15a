"""Tries whether a host lets us in, with OpenSSH as Ansible uses it, and says in a few words why not."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from launcher.base.parallel import Done, run_all
from launcher.inventory.hosts import Host

_CONNECT_S = 10
_LIMIT_S = 25.0
"""For the whole try: a node that takes the connection and then stands still."""
_TRY = (
    *("-T", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "UpdateHostKeys=no"),
    *("-o", f"ConnectTimeout={_CONNECT_S}", "-o", "LogLevel=INFO", "-o", "ClearAllForwardings=yes"),
    # A connection kept from an earlier run would prove nothing, and hang where the node has died since.
    *("-o", "ControlMaster=no", "-o", "ControlPath=none"),
)


class State(StrEnum):
    """What a try came to."""

    OK = "ok"
    DOWN = "down"
    DENIED = "denied"
    CHANGED = "CHANGED KEY"
    UNKNOWN = "unknown key"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A host's answer to a try."""

    state: State
    reason: str = ""
    said: str = ""
    """All that ssh said, for those who look closer."""


_REASONS: tuple[tuple[str, State, str], ...] = (
    # In this order: the first that fits is the cause, what follows its consequence.
    (r"Could not resolve hostname (\S+):", State.DOWN, "the name {1} is not known here; set ansible_host"),
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED", State.CHANGED, "its host key is not the pinned one"),
    (r"REVOKED HOST KEY", State.CHANGED, "its host key is marked as revoked"),
    (r"No \S+ host key is known for", State.UNKNOWN, "its host key is not known"),
    (r"Host key verification failed", State.UNKNOWN, "a host key on the way to it is not known"),
    (r"timed out", State.DOWN, "timed out; is it switched on, and does its firewall let SSH pass?"),
    (r"Connection refused", State.DOWN, "connection refused; is sshd running, and on this port?"),
    (r"No route to host|Network is unreachable", State.DOWN, "no route to it from here"),
    (r"(?:UNPROTECTED PRIVATE KEY FILE|bad permissions)", State.DENIED, "the private key's file is open to others"),
    (r"dentity file (.+?) not accessible", State.DENIED, "the private key {1} is not there"),
    (r"Too many authentication failures", State.DENIED, "too many keys tried; set ansible_ssh_private_key_file"),
    (
        r"(?m)^(?:(\S+?)@\S+: )?Permission denied",
        State.DENIED,
        "no key was accepted for user {1}; see ansible_user and its keys",
    ),
    (r"Connection (?:closed|reset)|kex_exchange_identification", State.DOWN, "sshd closed the connection at once"),
)


def try_all(hosts: Sequence[Host], options: Mapping[str, Sequence[str]]) -> dict[str, Answer]:
    """Log in to every host at once, with strict checking and without asking anything.

    Args:
        options: per host's name what ssh is given, besides the try's own.
    """
    commands = [("ssh", *_TRY, *options[host.name], "--", host.address, "true") for host in hosts]
    answers = run_all(commands, limit_s=_LIMIT_S)
    return {host.name: _forgiven(host, judge(done)) for host, done in zip(hosts, answers, strict=True)}


def judge(done: Done) -> Answer:
    """What ssh's exit code and words mean."""
    said = done.err.strip()
    if done.code == 0:
        return Answer(state=State.OK, said=said)
    if done.code is None:
        return Answer(state=State.DOWN, reason=f"took the connection, then no answer for {_LIMIT_S:.0f} s", said=said)
    if done.code != 255:
        return Answer(state=State.DENIED, reason=f"logged in, but can't run a command: {_last(said)}", said=said)
    for pattern, state, reason in _REASONS:
        found = re.search(pattern, said)
        if found:
            word = found[1] if found.re.groups and found[1] else "given"
            return Answer(state=state, reason=reason.replace("{1}", word), said=said)
    return Answer(state=State.DOWN, reason=_last(said), said=said)


def _forgiven(host: Host, answer: Answer) -> Answer:
    """Who logs in with a password can't be tried without asking; by then the host key has been checked."""
    if answer.state is State.DENIED and host.ssh.has_password:
        return Answer(state=State.OK, said=answer.said)
    return answer


def _last(said: str) -> str:
    return said.splitlines()[-1].strip() if said else "ssh gave no reason"
