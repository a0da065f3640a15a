"""Checks of the user's settings of nodes and faults, before anything is done. Pure."""

import os
import re

from launcher.base.errors import RingmasterError


def number(what: str, value: int, low: int, high: int, *, or_none: bool = False) -> None:
    """Refuse a number outside `low` to `high`; with `or_none`, 0 means "none" and is allowed too."""
    if not (low <= value <= high or (or_none and value == 0)):
        raise RingmasterError(f"{what}={value}: must be {'0 or ' if or_none else ''}{low} to {high}")


def pattern(what: str, text: str, wanted: str, meaning: str) -> None:
    """Refuse a text that the regular expression `wanted` doesn't match; `meaning` says what it must be."""
    if not re.fullmatch(wanted, text):
        raise RingmasterError(f"{what}={text}: must be {meaning}")


def cores(what: str, text: str) -> None:
    """Refuse anything but a list of this machine's cores, such as `0`, `0-1` or `0,2-3`."""
    pattern(what, text, r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*", "cores such as 0, 0-1 or 0,2")
    last = (os.cpu_count() or 1) - 1
    for part in text.split(","):
        first, _, end = part.partition("-")
        if not int(first) <= int(end or first) <= last:
            raise RingmasterError(f"{what}={text}: this machine has the cores 0 to {last}")


def interface(what: str, text: str) -> None:
    """Refuse a bad interface name: a root shell on the node reads it, and the kernel takes at most 15 characters."""
    pattern(what, text, r"[a-z][a-z0-9]{0,14}", "a name such as eth0 or ens5")
    if text in {"lo", "docker0", "aside0"}:
        raise RingmasterError(f"{what}={text}: that name is another interface's; take one such as ens5")
