"""The registry's program: the distribution's, unpacked but not installed.

Its package, once installed, starts a service that listens on every address, unless that is masked before.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import tempfile

from ansible.module_utils.ringmaster.core.disk import replacing

PACKAGE = "docker-registry"
_INSTALLED = "/usr/bin/docker-registry"
_SECONDS = 300
_APT = (
    "apt-get", "-qq",
    "-o", "APT::Sandbox::User=root",
    "-o", "Acquire::Retries=3",
    "-o", "Acquire::http::Timeout=15",
    "-o", "Acquire::https::Timeout=15",
)  # fmt: skip


def provide(folder: str) -> str:
    """Return the path of a registry program: the installed one, or else one that is unpacked into `folder` once.

    Raises:
        ValueError: the distribution's archive doesn't provide it.
    """
    ours = os.path.join(folder, PACKAGE)
    present = next((path for path in (_INSTALLED, ours) if os.path.exists(path)), None)
    if present is not None:
        return present
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["dpkg-deb", "-x", _download(scratch), scratch], check=True, timeout=_SECONDS)
        with replacing(ours, ours + ".part") as part:
            shutil.copy(scratch + _INSTALLED, part)
    return ours


def _download(scratch: str) -> str:
    """Return the package's file, found with the node's own lists, or else with fresh ones that don't replace them."""
    private = ["-o", f"Dir::Cache={scratch}/cache"]
    lists = [*private, "-o", f"Dir::State::Lists={scratch}/lists"]
    problem = _apt(scratch, *private, "download", PACKAGE)
    if problem:
        problem = _apt(scratch, *lists, "update") or _apt(scratch, *lists, "download", PACKAGE)
    archives = glob.glob(os.path.join(scratch, "*.deb"))
    if not archives:
        raise ValueError(
            f"the package {PACKAGE}, which hands the image on to the other nodes, can't be fetched ({problem}): "
            "correct apt's sources on this node (Ubuntu: enable universe), or install it"
        )
    return archives[0]


def _apt(scratch: str, *words: str) -> str:
    """Return what went wrong, or nothing."""
    for name in ("cache/archives/partial", "lists/partial"):
        os.makedirs(os.path.join(scratch, name), exist_ok=True)
    try:
        done = subprocess.run([*_APT, *words], cwd=scratch, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return "apt-get took too long"
    lines = (done.stderr.strip() or "no output").splitlines()
    return lines[-1] if done.returncode else ""
