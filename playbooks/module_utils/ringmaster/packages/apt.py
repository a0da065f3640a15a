"""Runs apt so that it waits for locks but never forever, asks nothing, and reports a failure in one line."""

from __future__ import annotations

import glob
import os
import re
import subprocess
import time
from dataclasses import dataclass

from ansible.module_utils.ringmaster.packages.dpkg import holder, interrupted, packages

# Seconds until a mirror that does not answer is given up; it is tried twice.
_STALLED = 15
_UPDATE_LIMIT = 180
_DOWNLOAD_LIMIT = 1800
_GIVEN_UP = 124  # the code of `timeout` then; 128 and more: a signal ended what it ran
_ARCHIVES = "/var/cache/apt/archives"
_OPTIONS = (
    "APT::Install-Recommends=false",
    "APT::Get::AutomaticRemove=false",
    "APT::Keep-Downloaded-Packages=false",
    f"Acquire::http::Timeout={_STALLED}",
    f"Acquire::https::Timeout={_STALLED}",
    "Acquire::Retries=1",
    "Dpkg::Use-Pty=0",
    "Dpkg::Options::=--force-confdef",
    "Dpkg::Options::=--force-confold",
)
_ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "APT_LISTCHANGES_FRONTEND": "none",
    # Ubuntu restarts services after an installation, among them the engine with everything that runs on it.
    "NEEDRESTART_SUSPEND": "1",
    "LC_ALL": "C.UTF-8",
}
_LOCKED = re.compile(r"Could not get lock|Unable to (lock|acquire)|lock was locked by another")
_UNKNOWN = re.compile(r"Unable to locate package|has no installation candidate|not available, but is referred")
_FULL = re.compile(r"enough free space|No space left on device")
_PLANNED = re.compile(r"^Inst (\S+) (?:\[(\S+)\] )?\(", re.MULTILINE)


class AptError(ValueError):
    """apt failed; the text is one line."""


class UnknownPackageError(AptError):
    """The package lists, if there are any, have no such package."""


class DownloadError(AptError):
    """A mirror did not answer, or no longer has what the lists promise."""


@dataclass(frozen=True)
class Step:
    """A package that an installation would bring."""

    name: str
    old: str | None
    """Version that it would replace."""


class Apt:
    """apt of this node. It waits for others that hold its locks, `patience_s` seconds in all."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._waited_s = 0.0

    def finish_interrupted(self) -> bool:
        """Continue what dpkg was interrupted at; return whether there was anything."""
        if not interrupted(packages()):
            return False
        # It fails where a half-unpacked package needs packages that apt brings next; then those continue it.
        self._run(["dpkg", "--configure", "-a", "--force-confdef", "--force-confold"])
        return True

    def plan(self, names: list[str]) -> list[Step]:
        """Return what installing these would bring.

        Raises:
            UnknownPackageError: the lists don't know one.
            AptError: it can't be installed beside what is there.
        """
        done = self._apt(["--simulate", "--fix-broken", "--no-remove", "install", *names], locks=False)
        if done.returncode:
            kind = UnknownPackageError if _UNKNOWN.search(done.stderr) else AptError
            raise kind(complaint(done))
        return [Step(name, old or None) for name, old in _PLANNED.findall(done.stdout)]

    def update(self) -> str:
        """Fetch the package lists; return what could not be fetched, because others' sources may be broken for long."""
        done = self._apt(["update"], limit_s=_UPDATE_LIMIT)
        if _FULL.search(done.stderr):
            raise AptError(complaint(done))
        return complaint(done) if done.returncode or "\nW: " in f"\n{done.stderr}" else ""

    def download(self, names: list[str]) -> None:
        """Fetch everything that installing these needs, before anything is changed."""
        words = ["--download-only", "--fix-broken", "--no-remove", "--yes", "install", *names]
        done = self._apt(words, limit_s=_DOWNLOAD_LIMIT)
        if done.returncode:
            ours = _signal(done) or _FULL.search(done.stderr)
            raise (AptError if ours else DownloadError)(complaint(done))

    def install(self, names: list[str]) -> None:
        """Install what was downloaded, without a time limit: we never interrupt it."""
        self._checked(["--no-download", "--fix-broken", "--no-remove", "--yes", "install", *names])

    def removal(self, names: list[str]) -> set[str]:
        """Return the packages that would go if these went."""
        done = self._apt(["--simulate", "--allow-change-held-packages", "purge", *names], locks=False)
        if done.returncode:
            raise AptError(complaint(done))
        return set(re.findall(r"^(?:Purg|Remv) (\S+) ", done.stdout, re.MULTILINE))

    def remove(self, names: list[str], *, purge: bool) -> None:
        """Remove these and nothing else; `purge`: with their settings."""
        if names:
            # A package whose unpacking was killed, and can't be finished, goes by force.
            force = ["-o", "Dpkg::Options::=--force-remove-reinstreq"]
            self._checked([*force, "--yes", "--allow-change-held-packages", "purge" if purge else "remove", *names])

    def unpack(self, name: str) -> None:
        """Finish a killed unpacking from the downloaded file: only a whole package can be removed cleanly."""
        for archive in archives(name):
            self._run(["dpkg", "--unpack", "--force-confdef", "--force-confold", archive])

    def mark(self, how: str, names: list[str]) -> None:
        """Mark packages: hold, unhold, auto or manual."""
        if names:
            done = self._run(["apt-mark", how, *names])
            if done.returncode:
                raise AptError(complaint(done))

    def manual(self) -> set[str]:
        """Return the packages that were asked for, not pulled in by others."""
        return set(self._run(["apt-mark", "showmanual"], locks=False).stdout.split())

    def _checked(self, words: list[str]) -> None:
        done = self._apt(words)
        if done.returncode:
            raise AptError(complaint(done))

    def _apt(self, words: list[str], *, limit_s: int = 0, locks: bool = True) -> subprocess.CompletedProcess[str]:
        options = [part for option in _OPTIONS for part in ("-o", option)]
        # `timeout` ends apt's own children too, which subprocess's would leave.
        bound = ["timeout", "--kill-after=5", str(limit_s)] if limit_s else []
        done = self._run([*bound, "apt-get", *options, *words], locks=locks)
        if limit_s and done.returncode == _GIVEN_UP:
            done.stderr = f"E: it was given up after {limit_s} s\n"
        return done

    def _run(self, words: list[str], *, locks: bool = True) -> subprocess.CompletedProcess[str]:
        """Run it once nobody else holds a lock that it needs.

        Raises:
            AptError: somebody held one all the time.
        """
        pause = 0.5
        while True:
            other = holder() if locks else None
            if other is None:
                done = subprocess.run(
                    words,
                    env={**os.environ, **_ENVIRONMENT},
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    check=False,
                )
                if not done.returncode or not _LOCKED.search(done.stderr):
                    return done
            if self._waited_s >= self._patience_s:
                raise AptError(
                    f"{other or 'another process'} has held apt's lock for {self._patience_s:.0f} s: wait until it has "
                    "ended (or end it), and run provision again"
                )
            time.sleep(pause)
            self._waited_s += pause
            pause = min(pause * 1.5, 5)


def archives(name: str) -> list[str]:
    """Return the downloaded files of a package."""
    return glob.glob(f"{_ARCHIVES}/{name}_*.deb")


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """Return the most telling line of apt's output: the first error, or else a warning, or else the last line."""
    if _signal(done):
        return f"it was ended from outside (signal {_signal(done)}): run provision again"
    lines = [" ".join(line.split()) for line in f"{done.stderr}\n{done.stdout}".splitlines() if line.strip()]
    full = next((line for line in lines if _FULL.search(line)), None)
    if full is not None:
        return f"{full.removeprefix('E: ').rstrip('.')}: free some there, and try again"
    for mark in (": Depends: ", ": Conflicts: ", "dpkg: error", "E: ", "W: "):
        for line, after in zip(lines, [*lines[1:], ""]):
            if mark in line:
                return f"{line} {after}" if line.endswith(":") else line.removeprefix("E: ").removeprefix("W: ")
    return lines[-1] if lines else f"exit code {done.returncode}"


def _signal(done: subprocess.CompletedProcess[str]) -> int:
    """Return the signal that ended it, also where `timeout` or a shell reports it; 0 for none."""
    return -done.returncode if done.returncode < 0 else max(done.returncode - 128, 0)
