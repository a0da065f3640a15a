"""Starts a program at the other end of an SSH channel, by words that no login shell can touch.

sshd hands whatever a client asks for to the user's login shell, which may be any: csh takes `!` for its history even
between quotes, fish a backslash, and quotes are closed in each in a way of its own. So the shell gets to see fixed text
and base64, which mean the same to all of them. A POSIX shell of ours decodes the words, and becomes the program.
"""

import base64
import os
import shlex
from collections.abc import Sequence

import paramiko

_PIECE = 800
"""The longest word for the login shell: the oldest csh refuses those above 1,000 characters."""
_BECOME = 'w=$(printf %s "$@" | base64 -d) && eval "exec $w"'
"""Without quote, backslash, exclamation mark and line break; it fails where there is no base64."""


def start(channel: paramiko.Channel, words: Sequence[str]) -> None:
    """Start a program at the channel's other end; nothing else here asks sshd to run anything."""
    channel.exec_command(command_line(words))


def command_line(words: Sequence[str]) -> str:
    """Return the command that starts a program with exactly these words, whatever the login shell is."""
    text = base64.b64encode(os.fsencode(shlex.join(words))).decode()
    pieces = [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
    return f"exec /bin/sh -c '{_BECOME}' sh {' '.join(pieces)}"
