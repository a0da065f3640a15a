"""The README's first command on a machine that has git, make, Python with venv and certificates, and nothing else.

The machine is a minimal root file system, which the test enters as an ordinary user in separate namespaces. The tree is
copied as git sees it. A hidden dependency on this machine shows here.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.base.command import on_host
from launcher.base.paths import ROOT

PACKAGES = "git,make,python3,python3-venv,ca-certificates"
USER = 1000
CHECKOUT = "home/user/ring master"  # with a space, as folders may have
# The way to the package registries is a matter of this machine, not of the test.
NETWORK = (
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "PIP_INDEX_URL",
    "UV_DEFAULT_INDEX",
)
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
ENTER = f"""
set -eu
mount --rbind /dev "$1/dev"
mount -t proc proc "$1/proc"
exec chroot --userspec={USER}:{USER} "$1" /usr/bin/env -i "${{@:2}}"
"""


def _unmet() -> str:
    """Return why this machine can't run the test, or nothing. With LAB=required, install what is missing."""
    if os.geteuid() != 0:
        return "needs root, to make a root file system"
    if not shutil.which("mmdebstrap") and os.environ.get("RINGMASTER_LAB") == "required":
        subprocess.run(["apt-get", "update", "-qq"], check=True, timeout=300)
        subprocess.run(["apt-get", "install", "-y", "-qq", "mmdebstrap"], check=True, timeout=300)
    if not shutil.which("mmdebstrap"):
        return "needs mmdebstrap (make test LAB=required installs it)"
    if shutil.disk_usage("/var/tmp").free < 16 << 30:
        return "needs 16 GB of disk"
    return ""


@pytest.fixture(scope="module")
def fresh_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    unmet = _unmet()
    if unmet and os.environ.get("RINGMASTER_LAB") == "required":
        pytest.fail(unmet)
    if unmet:
        pytest.skip(unmet)
    folder = tmp_path_factory.mktemp("fresh")
    root = folder / "root"
    words = ["mmdebstrap", "--quiet", "--variant=apt", f"--include={PACKAGES}", "--format=directory"]
    try:
        # In a separate mount namespace, so that an interrupted run leaves no mounts.
        build = on_host(["unshare", "--mount", *words, _codename(), str(root)], timeout=1200)
        assert build.returncode == 0, build.stdout
        shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
        if CERTIFICATES.exists():
            shutil.copy(CERTIFICATES, root / CERTIFICATES.relative_to("/"))
        _copy_checkout(root / CHECKOUT)
        subprocess.run(["chown", "-R", f"{USER}:{USER}", str(root / "home" / "user")], check=True)
        yield root
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _codename() -> str:
    """Return the release that this machine runs, as it has that one's signing keys."""
    lines = Path("/etc/os-release").read_text().splitlines()
    return next(line.partition("=")[2].strip('"') for line in lines if line.startswith("VERSION_CODENAME="))


def _copy_checkout(target: Path) -> None:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():  # git also lists files whose deletion isn't committed yet
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def _as_user(root: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """Run a command on the fresh machine as an ordinary user, with only the environment of a login."""
    environment = {
        "HOME": "/home/user",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PIP_CERT": str(CERTIFICATES),  # without it, Debian's pip uses certificates of its own
        **{name: os.environ[name] for name in NETWORK if name in os.environ},
    }
    words = [f"{key}={value}" for key, value in environment.items()]
    return subprocess.run(
        [
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "bash",
            "-c",
            ENTER,
            "enter",
            str(root),
            *words,
            *command,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=3000,
    )


@pytest.mark.timeout(5000)
def test_the_readmes_first_command(fresh_machine: Path) -> None:
    done = _as_user(fresh_machine, "make", "-C", f"/{CHECKOUT}", "train", "NODES=2")
    assert done.returncode == 0, done.stdout[-5000:]
    assert "ringmaster: installing trainer" in done.stdout
    latest = fresh_machine / CHECKOUT / "runs" / "latest"
    summary = json.loads((latest / "summary.json").read_text())
    assert summary["world_size"] == 2
    assert summary["test_accuracy"] >= 0.90
    again = _as_user(fresh_machine, "make", "-C", f"/{CHECKOUT}", "train", "NODES=2", "DRY_RUN=1")
    assert again.returncode == 0, again.stdout
    assert "installing" not in again.stdout


def test_help_sets_nothing_up(fresh_machine: Path) -> None:
    shutil.copytree(
        fresh_machine / CHECKOUT,
        fresh_machine / "home/user/untouched",
        ignore=shutil.ignore_patterns(".venv", "data", "runs"),
    )
    done = _as_user(fresh_machine, "make", "-C", "/home/user/untouched")
    assert done.returncode == 0
    assert "make <target>" in done.stdout
    assert not (fresh_machine / "home/user/untouched/.venv").exists()


def test_a_machine_without_venv_is_told_what_to_install(fresh_machine: Path) -> None:
    hidden = [*fresh_machine.glob("usr/lib/python3*/ensurepip"), *fresh_machine.glob("usr/lib/python3*/venv")]
    assert hidden
    for folder in hidden:
        folder.rename(folder.with_name(f"{folder.name}.hidden"))
    try:
        done = _as_user(fresh_machine, "make", "-C", "/home/user/untouched", "train")
    finally:
        for folder in hidden:
            folder.with_name(f"{folder.name}.hidden").rename(folder)
    assert done.returncode == 2
    assert "apt install python3-venv" in done.stdout
