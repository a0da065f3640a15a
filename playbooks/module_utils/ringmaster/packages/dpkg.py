"""Reads what dpkg knows, and who holds its locks, from its own files: starting its programs would take longer."""

from __future__ import annotations

import fcntl
import os
import re
import struct
from dataclasses import dataclass

STATUS = "/var/lib/dpkg/status"
LOCKS = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
)
_UPDATES = "/var/lib/dpkg/updates"
# struct flock on 64-bit Linux: type, whence, start, length, pid.
_FLOCK = "hhqqi4x"
_FIELDS = ("Package", "Status", "Version", "Architecture")
# The fields are among a paragraph's first lines. Reading must be fast: the file has 2 MB, and every run reads it.
_LINES = 18
_TRIES = 5


@dataclass(frozen=True)
class Package:
    """A package that dpkg knows."""

    version: str
    wanted: str
    """What dpkg has to do with it: install, hold, deinstall or purge."""
    state: str
    """installed, config-files (removed, its settings are left), or how far an interrupted installation came."""

    @property
    def installed(self) -> bool:
        """Whether it is installed."""
        return self.state == "installed"

    @property
    def unfinished(self) -> bool:
        """Whether its installation or removal was interrupted."""
        return self.state not in ("installed", "config-files", "not-installed")


def known(text: str) -> dict[str, Package]:
    """Return all packages of dpkg's status file, by the name that apt uses: `name`, or `name:arch` if it is foreign."""
    paragraphs = (_fields(one) for one in text.split("\n\n"))
    found = [one for one in paragraphs if len(one.get("Status", "").split()) == 3]
    native = next((one["Architecture"] for one in found if one["Package"] == "dpkg"), "all")
    return {
        _name(one, native): Package(one.get("Version", ""), one["Status"].split()[0], one["Status"].split()[2])
        for one in found
    }


def _fields(paragraph: str) -> dict[str, str]:
    lines = (line.partition(": ") for line in paragraph.split("\n", _LINES)[:_LINES])
    return {name: value for name, _, value in lines if name in _FIELDS}


def _name(fields: dict[str, str], native: str) -> str:
    own = fields.get("Architecture", "all") in ("all", native)
    return fields["Package"] if own else f"{fields['Package']}:{fields['Architecture']}"


def packages() -> dict[str, Package]:
    """Return all packages, with the changes that dpkg has noted but not yet merged: a killed dpkg leaves some."""
    for left in reversed(range(_TRIES)):
        try:
            return known("\n\n".join(_text(path) for path in (STATUS, *_noted())))
        except FileNotFoundError:
            # dpkg is running, and has merged its notes in between.
            if not left:
                raise
    raise AssertionError("unreachable")


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def interrupted(found: dict[str, Package]) -> bool:
    """Return whether dpkg was stopped half-way: nothing can be installed before it has been continued."""
    return bool(_noted()) or any(one.unfinished for one in found.values())


def _noted() -> list[str]:
    names = os.listdir(_UPDATES) if os.path.isdir(_UPDATES) else []
    return [os.path.join(_UPDATES, name) for name in sorted(names) if name.isdigit()]


def upstream(version: str) -> str:
    """Return the part of a package's version that its makers gave it: `5:24.0.7-1~debian.12` -> `24.0.7`."""
    return re.split(r"[-+~]", version.rpartition(":")[2])[0]


def at_least(version: str, minimum: str) -> bool:
    """Compare by the makers' numbers; a distribution's epochs and suffixes say nothing about the makers' floors."""
    return _numbers(upstream(version)) >= _numbers(upstream(minimum))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def holder() -> str | None:
    """Return who holds one of apt's locks, such as `apt-get (pid 123)`; None where they are free."""
    for path in LOCKS:
        process = _holding(path)
        if process is not None:
            return f"{_program(process)} (pid {process})" if process > 0 else "a process outside of this container"
    return None


def _holding(path: str) -> int | None:
    try:
        with open(path, "rb") as file:
            answer = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        return None
    kind, _, _, _, process = struct.unpack(_FLOCK, answer)
    return None if kind == fcntl.F_UNLCK else int(process)


def _program(process: int) -> str:
    """Return the program's name; a script's instead of its interpreter's (unattended-upgrade, not python3)."""
    try:
        with open(f"/proc/{process}/cmdline", encoding="utf-8", errors="replace") as file:
            words = [os.path.basename(word) for word in file.read().split("\0") if word]
    except OSError:
        return "a process"
    scripts = [word for word in words[1:2] if re.match(r"(python|perl|sh|bash)[\d.]*$", words[0]) and word[:1] != "-"]
    return (scripts or words or ["a process"])[0]
