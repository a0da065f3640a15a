"""Checks of what a user types about nodes and faults, before anything is done. Pure."""

import os
import re

from launcher.base.errors import RingmasterError


def number(what: str, value: int, low: int, high: int, *, or_none: bool = False) -> None:
    """Refuse a number outside `low` to `high`; with `or_none`, 0 stands for "none" and is right too."""
    if not (low <= value <= high or (or_none and value == 0)):
        raise RingmasterError(f"{what}={value}: must be {'0 or ' if or_none else ''}{low} to {high}")


def switch(what: str, text: str) -> bool:
    """Return whether a switch is on: 1 or 0; empty is 0."""
    if text not in {"", "0", "1"}:
        raise RingmasterError(f"{what}={text}: must be 1 or 0")
    return text == "1"


def pattern(what: str, text: str, wanted: str, meaning: str) -> None:
    if not re.fullmatch(wanted, text):
        raise RingmasterError(f"{what}={text}: must be {meaning}")


def cores(what: str, text: str) -> None:
    """Refuse what is no list of this machine's cores, such as `0`, `0-1` or `0,2-3`."""
    pattern(what, text, r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*", "cores such as 0, 0-1 or 0,2")
    last = (os.cpu_count() or 1) - 1
    for part in text.split(","):
        first, _, end = part.partition("-")
        if not int(first) <= int(end or first) <= last:
            raise RingmasterError(f"{what}={text}: this machine has the cores 0 to {last}")


def interface(what: str, text: str) -> None:
    """A shell of the node's root reads it, and the kernel takes 15 characters at most."""
    pattern(what, text, r"[a-z][a-z0-9]{0,14}", "a name such as eth0 or ens5")
    if text in {"lo", "docker0", "aside0"}:
        raise RingmasterError(f"{what}={text}: that name is another interface's; take one such as ens5")
