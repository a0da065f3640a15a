"""Takes back what an engine leaves behind: kinds engine, group. Each can be repeated after an interruption."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import re
import shlex
import shutil
from typing import Any

from ansible.module_utils.ringmaster.core.disk import read
from ansible.module_utils.ringmaster.core.manifest import Manifest
from ansible.module_utils.ringmaster.core.program import finished
from ansible.module_utils.ringmaster.engine.folders import clear, delete
from ansible.module_utils.ringmaster.engine.look import CONFIG
from ansible.module_utils.ringmaster.engine.socket import ask, process
from ansible.module_utils.ringmaster.packages.dpkg import packages

# What an engine makes while it runs, and its packages leave. Folders of settings go only if they are empty.
_DATA = (
    "/var/lib/docker",
    "/var/lib/containerd",
    "/opt/containerd",
    "/run/docker",
    "/run/docker.sock",
    "/run/docker.pid",
    "/run/containerd",
)
# Stays, with what belongs to it, where something of the user's needs it.
_CONTAINERD = ("containerd", "containerd.io")
_CONTAINERDS = re.compile(r"/(var/lib|opt|run|etc)/(containerd|cni)(/.*)?")
_SETTINGS = ("/etc/docker/key.json", "/etc/docker", "/etc/containerd", "/etc/cni/net.d", "/etc/cni")
_SWITCHES = ("/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding")
# The engine's own chains. An engine outside makes DOCKER_OUTPUT and the like in a container that is a node.
_CHAIN = re.compile(r"DOCKER(-.*)?")
_BRIDGE = re.compile(r"docker0|docker_gwbridge|br-[0-9a-f]{12}")
_PROGRAMS = ("iptables", "ip6tables")
_SECONDS = 180.0  # for a restart of the engine; what else is run here takes a moment
_TABLES = ("filter", "nat", "raw", "mangle")


def before() -> dict[str, Any]:
    """Return what must be known of a node before it gets an engine, so that all of it can be taken back."""
    return {
        "present": shutil.which("dockerd") is not None,
        "paths": [path for path in (*_DATA, *_SETTINGS) if os.path.lexists(path)],
        "empty": [path for path in _DATA if os.path.isdir(path) and not os.listdir(path)],
        "bridges": bridges(),
        "switches": {path: value for path in _SWITCHES if (value := (read(path) or "").strip())},
        "forward": {program: policy for program in _PROGRAMS if (policy := _forward_policy(program))},
        "group": _members("docker") is not None,
    }


def undo_engine(entry: dict[str, Any]) -> None:
    """Remove what an engine that is gone has left; an engine that stays reads its old configuration."""
    was = entry["before"]
    if _stays():
        _read_again()
        return
    if Manifest().find(entry["role"], "packages", "apt"):
        raise ValueError("its packages have to be removed first")
    known = packages()
    shared = any(name in known and known[name].installed for name in _CONTAINERD)
    new = [name for name in bridges() if name not in was["bridges"]]
    for program in _PROGRAMS:
        _clean(program, new)
        # Where the engine turned forwarding on, it closed it to others. With ufw on, the policy is ufw's.
        if was["forward"].get(program) == "ACCEPT" and not _ufw_enabled():
            _run(program, "-P", "FORWARD", "ACCEPT")
    for name in new:
        _run("ip", "link", "delete", name)
    for path, value in was["switches"].items():
        if (read(path) or "").strip() != value:
            with open(path, "w", encoding="ascii") as file:
                file.write(value)
    for path in (one for one in (*_DATA, *_SETTINGS) if not (shared and _CONTAINERDS.fullmatch(one))):
        if path not in was["paths"]:
            (_delete_setting if path in _SETTINGS else delete)(path)
        elif path in was["empty"]:
            clear(path)
    if not was["group"] and _members("docker") == []:
        _run("groupdel", "docker")


def undo_group(entry: dict[str, Any]) -> None:
    """Take the user out of a group that we added them to."""
    user, group = entry["user"], entry["name"]
    if user in (_members(group) or []):
        _run("gpasswd", "--delete", user, group)


def bridges() -> list[str]:
    return sorted(name for name in os.listdir("/sys/class/net") if _BRIDGE.fullmatch(name))


def engine_rules(rules: list[str], interfaces: list[str]) -> list[str]:
    """Return the rules outside of the engine's own chains that lead into those chains or name its bridges."""
    leading = []
    for rule in rules:
        words = shlex.split(rule)
        if words[0] != "-A" or _CHAIN.fullmatch(words[1]):
            continue
        targets = [words[at + 1] for at, word in enumerate(words) if word == "-j"]
        cards = [words[at + 1] for at, word in enumerate(words) if word in ("-i", "-o")]
        if any(map(_CHAIN.fullmatch, targets)) or set(cards) & set(interfaces):
            leading.append(rule)
    return leading


def _stays() -> bool:
    """Return whether an engine stays, which may be one that isn't in the path.

    Raises:
        ValueError: it is the one whose packages are gone.
    """
    running = process()
    if running is not None and os.readlink(f"/proc/{running}/exe").endswith(" (deleted)"):
        raise ValueError(f"the engine still runs (pid {running}), though its program is gone: end it, then reset again")
    return running is not None or shutil.which("dockerd") is not None


def _clean(program: str, interfaces: list[str]) -> None:
    """Remove the engine's chains and the rules that lead into them from all tables."""
    if shutil.which(program) is None:
        return
    for table in _TABLES:
        rules = _rules(program, table)
        for rule in engine_rules(rules, interfaces):
            _run(program, "-t", table, "-D", *shlex.split(rule)[1:])
        chains = [rule.split()[1] for rule in rules if rule.startswith("-N ")]
        chains = [chain for chain in chains if _CHAIN.fullmatch(chain)]
        for flag in ("-F", "-X"):  # all are emptied first: they lead into each other
            for chain in chains:
                _run(program, "-t", table, flag, chain)


def _rules(program: str, table: str) -> list[str]:
    done = finished([program, "-t", table, "-S"])
    return done.stdout.splitlines()


def _forward_policy(program: str) -> str | None:
    if shutil.which(program) is None:
        return None
    return next((rule.split()[2] for rule in _rules(program, "filter") if rule.startswith("-P FORWARD ")), None)


def _ufw_enabled() -> bool:
    return "ENABLED=yes" in (read("/etc/ufw/ufw.conf") or "").splitlines()


def _read_again() -> None:
    """Restart the engine for its old configuration; while containers run, it reads that at its next start.

    A reload is not enough: it keeps the settings that are no longer in the file.
    """
    if not _succeeds("systemctl", "cat", "docker.service"):
        return  # whoever installed the engine starts it in another way
    answers = ask("/info")
    try:
        wanted = bool(json.loads(read(CONFIG) or "{}").get("live-restore"))
    except ValueError as error:
        raise ValueError(f"{CONFIG} isn't valid JSON ({error}): correct it") from error
    if answers and answers[0]["LiveRestoreEnabled"] != wanted and not answers[0]["ContainersRunning"]:
        _run("systemctl", "reset-failed", "docker.service")
        _run("systemctl", "restart", "docker.service")


def _members(group: str) -> list[str] | None:
    try:
        return grp.getgrnam(group).gr_mem
    except KeyError:
        return None


def _delete_setting(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not os.path.isdir(path):
            os.unlink(path)
        elif not os.listdir(path):
            os.rmdir(path)


def _run(*words: str) -> None:
    done = finished(list(words), _SECONDS)
    if done.returncode:
        raise ValueError(f"{shlex.join(words)}: {' '.join(done.stderr.split()) or done.returncode}")


def _succeeds(*words: str) -> bool:
    return finished(list(words)).returncode == 0
