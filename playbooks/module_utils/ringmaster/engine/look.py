"""Reads a node's packages, container engine and NVIDIA toolkit. Read-only, from files and the engine's socket."""

from __future__ import annotations

import contextlib
import glob
import grp
import json
import os
import pwd
import re
import shutil
from typing import Any

from ansible.module_utils.ringmaster.core.disk import read
from ansible.module_utils.ringmaster.core.probe import LISTEN, socket_tables, sockets
from ansible.module_utils.ringmaster.core.program import finished
from ansible.module_utils.ringmaster.engine.socket import PIDFILE, ask, job_names, process, running_jobs
from ansible.module_utils.ringmaster.packages.dpkg import Package, holder, packages, upstream
from ansible.module_utils.ringmaster.packages.signing_key import dearmored, fingerprints

CONFIG = "/etc/docker/daemon.json"
# The engine accepts `--gpus` if it finds this program when it starts.
HOOK = "nvidia-container-runtime-hook"
# What an engine that a user runs without root leaves while it runs.
ROOTLESS = "/run/user/*/docker.pid"
# Packages that any role asks about.
INTEREST = (
    "docker.io",
    "docker-ce",
    "docker-ce-cli",
    "docker-cli",
    "moby-engine",
    "moby-cli",
    "moby-containerd",
    "moby-runc",
    "containerd",
    "containerd.io",
    "runc",
    "apparmor",
    "ca-certificates",
    "iptables",
    "ufw",
    "docker-registry",
    "nfs-common",
    "nfs-kernel-server",
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
_ENGINES = ("docker.io", "docker-ce", "moby-engine")
_TOOLKITS = ("nvidia-container-toolkit-base", "nvidia-container-toolkit")
# Ports of Docker's swarm mode: the engine listens there too, but accepts no commands.
_SWARM_PORTS = (2377, 7946)


def look_engine(user: str) -> dict[str, Any]:
    """Return packages, engine, toolkit and running jobs; `user` has to be in the group docker."""
    try:
        known = packages()
    except OSError:
        known = {}
    here = {name: known[name] for name in INTEREST if name in known and known[name].installed}
    answers = ask("/version", running_jobs())
    return {
        "packages": {name: package.version for name, package in here.items()},
        "held": sorted(name for name, package in here.items() if package.wanted == "hold"),
        "unfinished": [name for name in INTEREST if name in known and known[name].unfinished],
        "apt_locked_by": holder(),
        "apt_sources": apt_sources(),
        "signing_keys": signing_keys(),
        "engine": {
            "present": shutil.which("dockerd") is not None,
            "cli": shutil.which("docker") is not None,
            "snap": os.path.isdir("/var/snap/docker"),
            "podman": podman(),
            "rootless": [] if answers else sorted(glob.glob(ROOTLESS)),
            "version": upstream(answers[0]["Version"]) if answers else _version(here, _ENGINES),
            "answers": answers is not None,
            "stale": stale(),
            "swarm": os.path.exists("/var/lib/docker/swarm/docker-state.json"),
            "tcp": listening(),
            "user_in_group": in_group(user, "docker"),
            "needs_apparmor": _needs_apparmor(),
        },
        "toolkit": {
            "present": shutil.which(HOOK) is not None or shutil.which("nvidia-ctk") is not None,
            "version": _version(here, _TOOLKITS),
        },
        "jobs": job_names(answers[1]) if answers else [],
    }


def podman() -> str:
    """Return the version of Podman where the command docker is Podman's; empty where it isn't."""
    if shutil.which("docker") is None:
        return ""
    try:
        said = finished(["docker", "--version"], limit_s=10).stdout.strip()
    except (OSError, TimeoutError):
        return ""
    return said if said.startswith("podman") else ""


def stale() -> list[str]:
    """Return what came after the running engine's start, so that it has not read it: configuration, toolkit."""
    if process() is None:
        return []
    started = os.stat(PIDFILE).st_mtime
    hook = shutil.which(HOOK)
    unread = []
    if os.path.exists(CONFIG) and os.stat(CONFIG).st_mtime > started:
        unread.append(CONFIG)
    # The time it came into its folder, not the time it was built.
    if hook is not None and os.lstat(hook).st_ctime > started:
        unread.append(hook)
    return unread


def in_group(user: str, group: str) -> bool:
    """Return whether the user may talk to the engine; root always may."""
    try:
        account, found = pwd.getpwnam(user), grp.getgrnam(group)
    except KeyError:
        return False
    return account.pw_uid == 0 or account.pw_gid == found.gr_gid or user in found.gr_mem


def listening() -> list[str]:
    """Return the TCP addresses where the engine accepts commands from anyone: there should be none."""
    pid = process()
    if pid is None:
        return []
    held = set()
    for link in glob.glob(f"/proc/{pid}/fd/*"):
        with contextlib.suppress(OSError):
            held.add(os.readlink(link))
    allowed = {*_SWARM_PORTS, _metrics_port(read(CONFIG) or "{}")}
    rows = [one for one in sockets(socket_tables()) if one.state == LISTEN and f"socket:[{one.inode}]" in held]
    ports = {one.port: set(one.address) == {"0"} for one in rows}
    return [
        f"{'any address' if everywhere else 'one address'}, port {port}"
        for port, everywhere in sorted(ports.items())
        if port not in allowed
    ]


def apt_sources() -> list[str]:
    """Return the addresses of all package sources: apt refuses one that is added twice with different keys."""
    texts = (read(path) or "" for path in ("/etc/apt/sources.list", *glob.glob("/etc/apt/sources.list.d/*")))
    lines = (line for text in texts for line in text.splitlines() if not line.lstrip().startswith("#"))
    return sorted({address for line in lines for address in re.findall(r"\bhttps?://\S+", line)})


def signing_keys(keyrings: str = "/etc/apt/keyrings") -> dict[str, list[str]]:
    """Return the fingerprints in each file of keys that we put there: somebody may have added to it since."""
    found = {}
    for path in glob.glob(f"{keyrings}/ringmaster-*.asc"):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            found[path] = fingerprints(dearmored(file.read()))
    return found


def _metrics_port(config: str) -> int:
    with contextlib.suppress(ValueError, AttributeError, KeyError, TypeError):
        return int(json.loads(config)["metrics-addr"].rpartition(":")[2])
    return 0


def _version(here: dict[str, Package], candidates: tuple[str, ...]) -> str | None:
    return next((upstream(here[name].version) for name in candidates if name in here), None)


def _needs_apparmor() -> bool:
    """Return whether the engine lacks the program without which it starts no container where AppArmor is enforced."""
    enforced = (read("/sys/module/apparmor/parameters/enabled") or "").startswith("Y")
    return enforced and shutil.which("apparmor_parser", path="/usr/sbin:/sbin:/usr/bin") is None
