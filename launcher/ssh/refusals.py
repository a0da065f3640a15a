"""Why a node can't be used: what a refusal means and how to fix it, in words of our own for those of OpenSSH."""

import re
from dataclasses import dataclass, replace
from enum import StrEnum


class State(StrEnum):
    """What an attempt to log in came to."""

    OK = "ok"
    DOWN = "down"
    DENIED = "denied"
    CHANGED = "CHANGED KEY"
    UNKNOWN = "unknown key"


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """One attempt that failed."""

    state: State
    reason: str


class RefusedError(Exception):
    """A node that did not let us in."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


KEY_UNKNOWN = "its host key is not known"
KEY_CHANGED = "its host key is not the pinned one"
KEY_OF_ANOTHER_KIND = "it no longer has a key of the pinned kind"
KIND_NOT_TAKEN = "only its ed25519 key is pinned, and ssh takes none here (HostKeyAlgorithms, FIPS)"
PINNING = "make provision shows it, asks, and pins it"
TIMED_OUT = "timed out; is it switched on, and does its firewall let SSH pass?"
REFUSED = "connection refused; is sshd running, and on this port? (`ufw limit` refuses those who come often, too)"
TURNED_AWAY = (
    "sshd closed the connection before the login, again and again: too many logins at once (MaxStartups), or it blocks "
    "this address for a while (PerSourcePenalties, fail2ban)"
)
_NO_LOGINS = "it is starting up or shutting down, and lets nobody log in yet (pam_nologin)"
PASSING = (TURNED_AWAY, _NO_LOGINS)
"""Those that are worth another attempt."""
_KEY_REFUSED = "no key was accepted"
_NO_KEY = f"{_KEY_REFUSED} for user {{1}}; see ansible_user and its keys (ssh-add for one with a passphrase)"
_JUMP_REFUSED = "its jump host accepted no key for {1}; see ProxyJump and your keys for it; it gets no password"
_NO_FORWARD = "its jump host can't connect to it ({1}); see ansible_host, and AllowTcpForwarding there"
_NO_ROUTE = "no route to it from here"
_NO_SSH = "what answers there doesn't speak SSH; is this sshd's port?"
_OPEN_KEY = "the private key's file is open to others"
_TOO_MANY = "too many keys tried; set ansible_ssh_private_key_file"
_DIALLED = (
    r"(?:ssh: connect to host \S+ port \d+|channel \d+: open failed|ssh_dispatch_run_fatal|packet_write_(?:wait|poll)"
    r"|(?:kex|ssh)_exchange_identification|banner exchange):"
)
"""How ssh's lines about a connection begin; the second: that of a jump host's ssh."""
_SILENT = "make its start-up files (.bashrc, .cshrc, ...) silent where there is no terminal"
_SHOWN = 40
"""How many characters of a node's words a reason shows."""
_WRONG_OPTION = r"^((?:command-line|\S.*:|\S.* )\s*line \d+: (?:Bad|Missing|Unsupported|no argument|keyword) ?.*)$"
_FOR_PROXY = (
    r"(?s:.*)^(?:(?:kex|ssh)_exchange_identification:"
    r"|(?:banner exchange: Connection to|Connection (?:closed|reset) by) UNKNOWN port)"
)
"""What ssh says after the words of a proxy command's program, which have no form that we know; 9.5 changed it."""
_NOT_THERE = (
    r"^(?!no such identity|Load key|debug\d)(\S.*: (?:(?:command )?not found|No such file or directory"
    r"|Name or service not known|Temporary failure in name resolution))\s*$"
)
_PATTERNS: tuple[tuple[str, State, str], ...] = (
    # In this order: the first that fits is the cause, and what follows is its consequence. Each is a whole line of
    # ssh's own, from its beginning: the banner that a node shows before the login may say "permission denied", too.
    (_WRONG_OPTION, State.DENIED, "ssh refuses its options: {1}; fix ansible_ssh_common_args"),
    (r"^ssh: Could not resolve hostname (\S+):", State.DOWN, "the name {1} is not known here; set ansible_host"),
    (r"^@ +WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! +@", State.CHANGED, KEY_CHANGED),
    (r"^@ +WARNING: REVOKED HOST KEY DETECTED! +@", State.CHANGED, "its host key is marked as revoked"),
    (r"^No \S+ host key is known for \S+ and you have requested strict", State.UNKNOWN, KEY_UNKNOWN),
    (r"^Host key verification failed\.", State.UNKNOWN, "a host key on the way to it is not known"),
    (rf"^{_DIALLED}.*timed out", State.DOWN, TIMED_OUT),
    (r"^Connection timed out during banner exchange", State.DOWN, TIMED_OUT),
    (r"^(?:Connection to \S+ port \d+ timed out|Timeout, server \S+ not responding)", State.DOWN, TIMED_OUT),
    (rf"^{_DIALLED}.*Connection refused", State.DOWN, REFUSED),
    (rf"^{_DIALLED}.*(?:No route to host|Network is unreachable)", State.DOWN, _NO_ROUTE),
    (r"^channel \d+: open failed: (.*?)\s*^stdio forwarding failed", State.DOWN, _NO_FORWARD),
    (r"^@ +WARNING: UNPROTECTED PRIVATE KEY FILE! +@", State.DENIED, _OPEN_KEY),
    (r'^(?:Load key ".*": bad permissions|bad permissions: ignore key)', State.DENIED, _OPEN_KEY),
    (r"^Warning: Identity file (.+?) not accessible", State.DENIED, "the private key {1} is not there"),
    (r"^Received disconnect from \S+ port \d+:\d+: Too many authentication failures", State.DENIED, _TOO_MANY),
    (rf"^(\S+?@\S+): Permission denied \({_FOR_PROXY}", State.DENIED, _JUMP_REFUSED),
    (r"^(\S+?)@\S+: Permission denied \(", State.DENIED, _NO_KEY),
    (r"^Permission denied(?: \(|, please try again\.)", State.DENIED, _NO_KEY.replace(" for user {1}", "")),
    (rf"timed out{_FOR_PROXY}", State.DOWN, TIMED_OUT),
    (rf"Connection refused{_FOR_PROXY}", State.DOWN, REFUSED),
    (rf"(?:No route to host|Network is unreachable){_FOR_PROXY}", State.DOWN, _NO_ROUTE),
    (rf"{_NOT_THERE}{_FOR_PROXY}", State.DOWN, "its ProxyCommand fails: {1}"),
    (r"(?s:^\W*System is (?:booting up|going down)\..*)^Connection closed by", State.DOWN, _NO_LOGINS),
    (r"^Connection (?:closed|reset) by \S+ port \d+\s*$", State.DOWN, TURNED_AWAY),
    (r"^(?:kex|ssh)_exchange_identification:.*(?:Connection (?:closed|reset)|Not allowed at this time|Exceeded MaxSt)",
     State.DOWN, TURNED_AWAY),
    (r"^(?:kex|ssh)_exchange_identification:", State.DOWN, _NO_SSH),
)  # fmt: skip


def explain(words: str) -> Refusal | None:
    """Return what an SSH client's `words` mean; None if they are none that we know."""
    for pattern, state, reason in _PATTERNS:
        found = re.search(pattern, words, re.MULTILINE)
        if found:
            return Refusal(state=state, reason=reason.replace("{1}", found[1] if found.re.groups else ""))
    return None


def wrong_password(refusal: Refusal) -> Refusal:
    """Return the refusal of a node that was given a password; other reasons than the login's stay."""
    if not refusal.reason.startswith(_KEY_REFUSED):
        return refusal
    who = refusal.reason.partition(";")[0].replace(_KEY_REFUSED, "neither a key nor the password was accepted")
    return replace(refusal, reason=f"{who}; see ansible_user, and ansible_password or what was typed for ASK=ssh")


def unasked_password(refusal: Refusal) -> Refusal:
    """Return the refusal of a node that had a password waiting; other reasons than the login's stay."""
    if not refusal.reason.startswith(_KEY_REFUSED):
        return refusal
    unasked = "the password was not asked for (PasswordAuthentication, there or here)"
    return replace(refusal, reason=f"{refusal.reason}; {unasked}")


def locked_password(refusal: Refusal) -> Refusal:
    """Return the refusal of a node whose password is encrypted; other reasons than the login's stay."""
    if not refusal.reason.startswith(_KEY_REFUSED):
        return refusal
    locked = "its ansible_password is encrypted, and no password opens it (ASK=vault)"
    return replace(refusal, reason=f"{refusal.reason}; {locked}")


def changed(shown: str, pinned: str) -> Refusal:
    """Return the refusal of a node that shows one fingerprint where others are pinned."""
    reason = f"it shows {shown}, pinned is {pinned}: installed anew, or someone stands between; make verify explains"
    return Refusal(state=State.CHANGED, reason=reason)


def talkative(words: str) -> Refusal:
    """Return the refusal of a node whose shell prints `words` before each program."""
    first = (words.strip().splitlines() or [""])[0].strip()[:_SHOWN]
    reason = f'its login shell prints "{first}" before every program; {_SILENT}'
    return Refusal(state=State.DENIED, reason=reason)


def one_line(error: BaseException) -> str:
    """Return an error's words on one line that fits the table of all nodes."""
    return " ".join(str(error).split())[:200] or type(error).__name__
