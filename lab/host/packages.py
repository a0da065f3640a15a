"""The distribution's packages on this machine: installs some, says which came with them, and removes these again."""

import subprocess
from collections.abc import Callable

from lab.base import command
from launcher.base.errors import ExitCode, RingmasterError

_QUIET = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_MODE": "a"}
# Another apt may hold the lock (unattended upgrades after boot): wait for it rather than fail.
_APT = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120", "-o", "Acquire::Retries=3")


def install(*names: str, note: Callable[[tuple[str, ...]], None]) -> None:
    """Install packages without their recommendations; `note` gets all that were added, also if interrupted.

    Raises:
        RingmasterError: apt failed.
    """
    before = _installed()
    _run("update")
    try:
        _run("install", "--yes", "--no-install-recommends", *names)
    finally:
        note(tuple(sorted(_installed() - before)))


def remove(names: tuple[str, ...]) -> None:
    """Purge those of `names` that are still installed.

    Raises:
        RingmasterError: apt failed.
    """
    left = sorted(set(names) & _installed())
    if left:
        _run("purge", "--yes", *left)


def _installed() -> set[str]:
    query = ["dpkg-query", "--show", "--showformat=${db:Status-Abbrev} ${Package}\n"]
    listed = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60).stdout
    return {line.split()[1] for line in listed.splitlines() if line.startswith("ii")}


def _run(*words: str) -> None:
    done = command.on_host([*_APT, *words], environment=_QUIET, timeout=600)
    if done.returncode:
        last = " ".join((done.stdout.strip().splitlines() or ["no output"])[-1].split())
        raise RingmasterError(
            f"apt-get {' '.join(words[:1])} failed ({last}); fix apt on this machine, then try again",
            exit_code=ExitCode.NOT_STARTED,
        )
