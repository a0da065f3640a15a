"""The terminal: what may be written to it, and standard output that nobody reads any more."""

import os
import re
import sys
from contextlib import suppress

_COLOURS = re.compile(r"(?:\x1b\[|\x9b)[0-9;:]*m")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def visible(text: str) -> str:
    """Return a text that a node may have had a hand in, as it may be written to a terminal.

    Names, reasons and messages of other machines must neither move the cursor over other lines, nor set the title or
    the clipboard. So control characters are shown as their escapes; colours are dropped. Line feeds and tabs stay. What
    ranks print has a rule of its own: `launcher.follow.show.rank_lines`.
    """
    if text.isprintable():
        return text
    text = _COLOURS.sub("", text.replace("\r\n", "\n"))
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def in_one_line(text: str) -> str:
    """Return the same for a cell of a table: a line feed in it must not look like the table's next row."""
    return visible(text).replace("\n", "\\n")


def mute() -> None:
    """Send standard output nowhere from now on, instead of failing.

    Its reader has left (`| head`), or the disk is full.
    """
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
