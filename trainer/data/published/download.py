"""Downloads: a file from a mirror on the network, or the distribution's package, unpacked without root.

What is downloaded, and from where, is in `catalog.py`.
"""

from __future__ import annotations

import hashlib
import os
import queue
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from trainer.data.published.catalog import Package

Say = Callable[[str], None]

SILENCE_S = 5.0
"""A source that sends nothing for this long is given up: name look-up, connecting and reading alike."""
DOWNLOAD_S = 900.0
"""A file that takes longer is given up, however steadily it drips (170 MB at 190 kB/s)."""
PROGRESS_S = 3.0
"""How often a download reports its progress."""

APT_SETTINGS = f"""
// apt's own user couldn't write to our folder
APT::Sandbox::User "root";
// a source that doesn't answer counts as an error, so that the reason is known
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::PDiffs "false";
Acquire::Retries "0";
Acquire::http::Timeout "{SILENCE_S:.0f}";
Acquire::https::Timeout "{SILENCE_S:.0f}";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
// the system's own actions after an update are not meant for this one
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
"""


class UnavailableError(Exception):
    """A source doesn't have the data, or not all of it; the message says why in a few words."""


def download(url: str, target: Path, *, sha256: str, say: Say) -> None:
    """Fetch `url` into `target` and check it.

    Urllib's own time-out covers neither name look-up nor a host with many dead addresses, so another thread reads, and
    this one watches it.

    Raises:
        UnavailableError: no answer, silence for SILENCE_S, an HTTP error, or a SHA-256 other than `sha256`.
    """
    progress: queue.Queue[int | Exception] = queue.Queue()
    stop = threading.Event()
    threading.Thread(target=_read_url, args=(url, target, progress, stop), daemon=True).start()
    try:
        _watch(url, progress, say)
    finally:
        stop.set()
    with target.open("rb") as stream:
        if hashlib.file_digest(stream, "sha256").hexdigest() != sha256:
            raise UnavailableError("its file has the wrong checksum")


def _watch(url: str, progress: queue.Queue[int | Exception], say: Say) -> None:
    received, started = 0, time.monotonic()
    reported = started
    while True:
        try:
            news = progress.get(timeout=SILENCE_S)
        except queue.Empty:
            raise UnavailableError(f"no answer for {SILENCE_S:.0f} s") from None
        if isinstance(news, Exception):
            raise UnavailableError(_short(news)) from news
        if news == 0:
            return
        received += news
        now = time.monotonic()
        if now - started > DOWNLOAD_S:
            raise UnavailableError(f"too slow: {received / 1e6:.1f} MB in {DOWNLOAD_S:.0f} s")
        if now - reported > PROGRESS_S:
            say(f"{url.rpartition('/')[2]}: {received / 1e6:.0f} MB")
            reported = now


def _read_url(url: str, target: Path, progress: queue.Queue[int | Exception], stop: threading.Event) -> None:
    try:
        # The watching thread gives up first; this time-out only ends the thread.
        request = urllib.request.urlopen(url, timeout=2 * SILENCE_S)  # noqa: S310 - the catalog's addresses
        with request as response, target.open("wb") as file:
            while (chunk := response.read(1 << 16)) and not stop.is_set():
                file.write(chunk)
                progress.put(len(chunk))
        progress.put(0)
    except Exception as error:  # whatever it is, the watching thread reports it
        progress.put(error)


def _short(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}"
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return str(getattr(reason, "strerror", None) or reason or type(reason).__name__)


def unpack_package(package: Package, work: Path, *, say: Say) -> Path:
    """Fetch the distribution's `package` into `work`, unpack it there without privileges, and return the files' folder.

    apt checks it against the distribution's signature. If the system's package lists don't suffice, lists of our own
    are fetched below `work`, so that nothing of the system's changes and root is not needed.

    Raises:
        UnavailableError: no apt here, no such package, or no network.
    """
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise UnavailableError("no apt on this machine")
    say(f"fetching the package {package.name} ({package.megabytes} MB) with apt, no root needed")
    lists = work / "apt" / "lists"
    for folder in (lists / "partial", work / "apt" / "archives" / "partial"):
        folder.mkdir(parents=True)
    private = ["-o", f"Dir::State::Lists={lists}"]
    try:
        _apt(work, [], "download", package.name)
    except UnavailableError:
        # A third-party source that fails makes `update` fail, but the lists of the others are there.
        try:
            _apt(work, private, "update")
        except UnavailableError as error:
            if not list(lists.glob("*_Packages*")):
                raise UnavailableError(f"apt-get update: {error}") from error
        _apt(work, private, "download", package.name)
    archive = next(work.glob(f"{package.name}_*.deb"))
    _run(["dpkg-deb", "-x", str(archive), str(work / "package")], work)
    return work / "package" / package.folder


def _apt(work: Path, options: list[str], *command: str) -> None:
    settings = work / "apt" / "settings"
    settings.write_text(APT_SETTINGS)
    _run(["apt-get", "-qq", "-c", str(settings), "-o", f"Dir::Cache={work / 'apt'}", *options, *command], work)


def _run(command: list[str], work: Path) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=work,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=DOWNLOAD_S,
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{command[0]} took longer than {DOWNLOAD_S:.0f} s") from error
    if done.returncode != 0:
        complaints = [line for line in done.stderr.splitlines() if line.startswith("E:")] or done.stderr.splitlines()
        raise UnavailableError(complaints[0].removeprefix("E:").strip() if complaints else f"{command[0]} failed")
