"""Where the user called from: relative paths in variables mean that folder, and not this checkout.

make changes into the checkout (`make -C path/to/ringmaster`) before it reads anything, and tells nobody where it was
before. The shell's PWD says it, which the Makefile hands on, as long as somebody keeps it up to date: programs that
start make themselves often don't. Where /proc shows that nobody did, the working folder of make's parent counts.
"""

import os
import re
from contextlib import suppress
from pathlib import Path

from launcher.base.paths import ROOT

TOLD = "RM_CALLER"
"""In the environment of what make starts: PWD as make found it; empty where it found none."""
_TURNS = re.compile(rb"--d|-[A-Za-z]*C")
"""Begins a word that makes `make` change its folder: -C, -sC, --directory."""


def folder() -> Path:
    """Return the folder that the user called make, or fab, from."""
    here = Path.cwd()
    told = os.environ.get(TOLD)
    if told is None:
        return here  # nobody called make
    make = os.getppid()  # its recipes put the program into the shell's place
    words = _read(make, "cmdline")
    if words and not any(map(_TURNS.match, words)):
        return here
    parent = _parent(make)
    if not told or f"PWD={told}".encode(errors="surrogateescape") in _read(parent, "environ"):
        # None, or the one that make's parent was started with itself: it may have gone elsewhere since.
        below = _working_folder(parent)
        if below and not (told and _same(Path(told), below)):
            return below
    return Path(told) if Path(told).is_absolute() and Path(told).is_dir() else here


def path(name: str) -> Path:
    """Return the file or folder that a variable names, as short as it can be from our own working folder.

    A relative path begins where the user called from. `~` is the home folder, also where the shell did not put it in,
    as in `make SCRIPT=~/x`.
    """
    typed, caller = Path(os.path.expanduser(name)), folder()  # noqa: PTH111 - Path's fails where a user is unknown
    return typed if _same(caller, Path.cwd()) else caller / typed


def absolute(name: str) -> Path:
    """Return the same as an absolute path without `..`, whose parents are the folders that it lies in.

    What comes after the last `..` stays as it was typed, symbolic links too.
    """
    parts = path(name).absolute().parts
    if ".." not in parts:
        return Path(*parts)
    behind = len(parts) - parts[::-1].index("..")
    return Path(*parts[:behind]).resolve().joinpath(*parts[behind:])


def looked_in(name: str) -> str:
    """Return, for the message about a relative path that is not there, where it was looked for; else nothing.

    Whoever calls from another folder may have meant this checkout, where the same path exists: both are named.
    """
    typed, caller = Path(os.path.expanduser(name)), folder()  # noqa: PTH111
    if typed.is_absolute() or _same(caller, ROOT):
        return ""
    there = ROOT / typed
    return f" in {caller}" + (f" (there is {there}: give this path if you mean it)" if there.exists() else "")


def shown(path: Path) -> str:
    """Return a path for a message, as short as it can be from the folder where the user is."""
    with suppress(OSError):  # somebody has removed that folder meanwhile
        here = folder()
        return os.path.relpath(path, here) if path.is_relative_to(here) else str(path)
    return str(path)


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _read(process: int, name: str) -> list[bytes]:
    """Return a process's words or variables; none where the system doesn't show them."""
    try:
        return Path(f"/proc/{process}/{name}").read_bytes().split(b"\0")
    except OSError:
        return []


def _parent(process: int) -> int:
    found = re.search(rb"^PPid:\s*(\d+)$", b"\0".join(_read(process, "status")), re.MULTILINE)
    return int(found[1]) if found else 0


def _working_folder(process: int) -> Path | None:
    try:
        found = Path(f"/proc/{process}/cwd").readlink()
    except OSError:
        return None
    return found if found.is_dir() else None
