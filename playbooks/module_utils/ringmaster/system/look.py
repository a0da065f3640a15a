"""Reads what a node is: system, resources, the operator's connection. Read-only; what can't be read is None."""

from __future__ import annotations

import glob
import os
import platform
import pwd
import shutil
import socket
import time
from typing import Any

from ansible.module_utils.ringmaster.core.disk import read
from ansible.module_utils.ringmaster.core.probe import memory

_DATA = "/var/lib"


def look_system() -> dict[str, Any]:
    """Return the node's system, its resources, and the SSH user that Ansible logged in as."""
    ssh = connection()
    return {
        "user": account(),
        "ssh": ssh,
        "machine": f"{_quietly('/etc/machine-id')} {_quietly('/proc/sys/kernel/random/boot_id')}",
        "hostname": socket.gethostname(),
        "os": os_release(read("/etc/os-release") or ""),
        "arch": platform.machine(),
        "python": platform.python_version(),
        "systemd": os.path.isdir("/run/systemd/system"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mb": memory() >> 20,
        "disk_free_gb": shutil.disk_usage(_DATA).free >> 30,
        "clock": time.time(),
        "reboot_pending": os.path.exists("/run/reboot-required"),
        "host_keys": host_keys(),
        "mounts": network_mounts(read("/proc/mounts") or ""),
    }


def account() -> dict[str, Any]:
    """Return the SSH user: whoever called sudo, or root who logged in as root."""
    name = os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
    entry = pwd.getpwnam(name)
    return {
        "name": name,
        "uid": entry.pw_uid,
        "gid": entry.pw_gid,
        "home": entry.pw_dir,
        "shell": entry.pw_shell,
        "root": os.geteuid() == 0,
    }


def connection() -> dict[str, Any] | None:
    """Return both ends of the live SSH connection as sshd sees them.

    sudo drops the variable that holds them, but the shell that called sudo still has it.
    """
    process = os.getpid()
    while process > 1:
        variables = _environment(process)
        if "SSH_CONNECTION" in variables:
            client, client_port, address, port = variables["SSH_CONNECTION"].split()
            return {"client": client, "client_port": int(client_port), "address": address, "port": int(port)}
        process = _parent(process)
    return None


def os_release(text: str) -> dict[str, str]:
    """Return what /etc/os-release says of the system."""
    lines = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    values = {key: value.strip("\"'") for key, value in lines}
    return {
        "id": values.get("ID", "unknown"),
        "like": values.get("ID_LIKE", ""),
        "version": values.get("VERSION_ID", ""),
        "codename": values.get("VERSION_CODENAME", ""),
        "name": values.get("PRETTY_NAME", values.get("ID", "unknown")),
    }


def network_mounts(text: str) -> dict[str, str]:
    """Return the mounts from other machines (NFS): source by folder."""
    rows = (line.split() for line in text.splitlines())
    return {folder: source for source, folder, kind, *_ in rows if kind.startswith("nfs")}


def host_keys() -> list[str]:
    """Return the node's public host keys, each as `type key`."""
    texts = (read(path) or "" for path in sorted(glob.glob("/etc/ssh/ssh_host_*_key.pub")))
    return [" ".join(text.split()[:2]) for text in texts if text.strip()]


def _environment(process: int) -> dict[str, str]:
    text = _quietly(f"/proc/{process}/environ")
    return dict(one.split("=", 1) for one in text.split("\0") if "=" in one)


def _parent(process: int) -> int:
    fields = _quietly(f"/proc/{process}/stat").rpartition(")")[2].split()
    return int(fields[1]) if len(fields) > 1 else 0


def _quietly(path: str) -> str:
    try:
        return read(path) or ""
    except OSError:
        return ""
