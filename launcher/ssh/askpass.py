"""Lets an ssh ask for a node's password as it asks people who have no terminal: by a program, SSH_ASKPASS."""

from collections.abc import Mapping
from pathlib import Path

from launcher.base.paths import ROOT

OPTIONS = ("-o", "BatchMode=no", "-o", "NumberOfPasswordPrompts=1")
"""With one question, a wrong password counts once, for fail2ban too. (An sshd that asks in two ways, password and
keyboard-interactive, counts an empty one besides: ssh can't be told to leave out the second.)"""
_PROGRAM = ROOT / "launcher" / "ssh" / "askpass.sh"
_AS_ITSELF = 'export RINGMASTER_ASKED_BY=$$; exec "$@"'


def command(ssh: list[str]) -> list[str]:
    """Return the command for an ssh that may ask: it knows its own process's number, and the program its parent's."""
    return ["/bin/sh", "-c", _AS_ITSELF, "sh", *ssh]


def environment(pipe: Path) -> Mapping[str, str]:
    """Return what an ssh must find in its environment to ask the program, which reads the password from `pipe`."""
    return {
        "SSH_ASKPASS": str(_PROGRAM),
        "SSH_ASKPASS_REQUIRE": "force",
        "DISPLAY": "none",  # before OpenSSH 8.4, only who has a display is asked so, and no terminal
        "RINGMASTER_PASSWORD_PIPE": str(pipe),
    }
