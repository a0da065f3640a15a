"""What a node tells of itself before a job starts: one JSON object on standard output.

Runs on the node as `python3 -IS -c <this source> '{"job_dir": …, "data_dir": …}'`, so it stands alone: the standard
library of Python 3.9, no sibling imports, nothing installed. Read-only, and for the SSH user: what needs root is not
looked at. Each part is looked at on its own: one that fails is null, with a line in "troubles" that says why.
"""

from __future__ import annotations

import json
import os
import platform
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_COMM_ENV = "/etc/ringmaster/comm.env"
_IMAGE = "/var/lib/ringmaster/image.json"
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_PORTS = range(1024, 65536)
_LISTENING = "0A"  # TCP_LISTEN in the kernel's tables
_CAP_SYS_RESOURCE = 24  # linux/capability.h
_SECONDS = 20.0
_GPUS = ("index", "uuid", "name", "memory.total", "memory.used", "driver_version")
_PROCESSES = ("gpu_uuid", "pid", "process_name", "used_memory")
_FORMAT = "--format=csv,noheader,nounits"


def look(job_dir: str, data_dir: str) -> dict[str, Any]:
    """Return all that is known of this node."""
    ends = time.monotonic() + _SECONDS
    # These three take the time there is; they run while the rest is looked at.
    smi_gpus = _start("nvidia-smi", f"--query-gpu={','.join(_GPUS)}", _FORMAT)
    smi_processes = _start("nvidia-smi", f"--query-compute-apps={','.join(_PROCESSES)}", _FORMAT)
    ip = _start("ip", "-json", "-4", "address", "show")
    parts: dict[str, Callable[[], Any]] = {
        "uid": os.getuid,
        "gid": os.getgid,
        "user": lambda: pwd.getpwuid(os.getuid()).pw_name,
        "host_name": socket.gethostname,
        "architecture": platform.machine,
        "cores": lambda: len(os.sched_getaffinity(0)),
        "memory": memory,
        "memlock": memlock,
        "comm_env": lambda: variables(_read(_COMM_ENV)),
        "image": lambda: json.loads(_read(_IMAGE) or "null"),
        "listening": lambda: listening(_read("/proc/net/tcp") or "", _read("/proc/net/tcp6") or ""),
        "devices": devices,
        "job_dir": lambda: folder(job_dir),
        "data_dir": lambda: folder(data_dir),
        "certificates": lambda: Path(_CERTIFICATES).exists(),
        "interfaces": lambda: interfaces(_answer(ip, "ip", ends)),
        "gpus": lambda: gpus(_answer(smi_gpus, "nvidia-smi", ends)) if smi_gpus else [],
        "gpu_processes": lambda: processes(_answer(smi_processes, "nvidia-smi", ends)) if smi_processes else [],
    }
    found: dict[str, Any] = {"troubles": {}}
    for name, part in parts.items():
        try:
            found[name] = part()
        except Exception as error:  # whatever it is: the other parts count all the same
            found[name] = None
            found["troubles"][name] = " ".join(str(error).split()) or type(error).__name__
    found["time"] = time.time()  # last: compared with the operator's clock when the answer is there
    return found


def variables(text: str | None) -> dict[str, str] | None:
    """Return what an environment file in the form of docker's --env-file says; None where there is none."""
    if text is None:
        return None
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def memory() -> int:
    """Return bytes: the machine's, or its own cgroup's limit (a container as node) where that is lower."""
    lines = (_read("/proc/meminfo") or "").splitlines()
    total = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemTotal:"))
    limits = ((_read(path) or "").strip() for path in _CGROUP_LIMITS)
    return min([total, *(int(limit) for limit in limits if limit.isdigit())])


def memlock() -> int:
    """Return how many bytes a container may be allowed to pin; -1: as many as it wants.

    An engine without CAP_SYS_RESOURCE (this "machine" is a container itself) can't lift a limit above its own.
    """
    with open("/proc/1/status") as file:
        bounds = next(int(line.split()[1], 16) for line in file if line.startswith("CapBnd:"))
    if bounds >> _CAP_SYS_RESOURCE & 1:
        return -1
    with open("/proc/1/limits") as file:
        hard = next(line.split()[4] for line in file if line.startswith("Max locked memory"))
    return -1 if hard == "unlimited" else int(hard)


def listening(*tables: str) -> list[int]:
    """Return the TCP ports that something listens at, of those an ordinary user may take."""
    rows = (line.split() for table in tables for line in table.splitlines()[1:])
    ports = {int(row[1].rpartition(":")[2], 16) for row in rows if len(row) > 3 and row[3] == _LISTENING}
    return sorted(ports.intersection(_PORTS))


def devices() -> list[str]:
    """Return the device files that let NCCL use InfiniBand, and copy between it and GPUs."""
    paths = [*sorted(Path("/dev/infiniband").glob("*")), Path("/dev/gdrdrv")]
    return [str(path) for path in paths if path.is_char_device()]


def folder(path: str) -> dict[str, Any]:
    """Return whether a folder is there, whether we may write to it, and the free bytes of its file system."""
    there = Path(path).is_dir()
    return {
        "path": path,
        "there": there,
        "writable": there and os.access(path, os.W_OK | os.X_OK),
        "free": shutil.disk_usage(path).free if there else None,
    }


def interfaces(text: str) -> list[dict[str, Any]]:
    """Return name, MTU and IPv4 addresses (with the prefix's length) of each interface that has one."""
    return [
        {
            "name": one["ifname"],
            "mtu": one["mtu"],
            "addresses": [f"{info['local']}/{info['prefixlen']}" for info in one["addr_info"] if "local" in info],
        }
        for one in json.loads(text)
        if one.get("addr_info")  # `ip -4` shows the others as empty objects
    ]


def gpus(text: str) -> list[dict[str, Any]]:
    """Return each GPU; memory in MiB."""
    found = []
    for line in filter(None, text.splitlines()):
        index, uuid, name, total, used, driver = _fields(line, len(_GPUS), before=2)
        if not index.isdigit():
            raise ValueError(line)
        found.append(
            {
                "index": index,
                "uuid": uuid,
                "model": name,
                "memory_mib": _number(total),
                "used_mib": _number(used),
                "driver": driver,
            }
        )
    return found


def processes(text: str) -> list[dict[str, Any]]:
    """Return each process that computes on a GPU; memory in MiB."""
    found = []
    for line in filter(None, text.splitlines()):
        gpu, pid, name, used = _fields(line, len(_PROCESSES), before=2)
        found.append({"gpu": gpu, "pid": _number(pid), "name": Path(name).name, "memory_mib": _number(used)})
    return found


def _fields(line: str, count: int, *, before: int) -> list[str]:
    """Return a line's fields; the one after the first `before`, a name, may have commas, which nvidia-smi leaves."""
    words = [word.strip() for word in line.split(",")]
    if len(words) < count:
        raise ValueError(line)
    after = len(words) - (count - before - 1)
    return [*words[:before], ", ".join(words[before:after]), *words[after:]]


def _number(text: str) -> int | None:
    """Return a number, or None for what nvidia-smi can't tell, such as [N/A]."""
    return int(text) if text.isdigit() else None


def _start(*words: str) -> subprocess.Popen[str] | None:
    """Start a program; None where it isn't installed."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"  # a login without a shell's profile may lack these
    program = shutil.which(words[0], path=path)
    if program is None:
        return None
    return subprocess.Popen(
        [program, *words[1:]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, "LC_ALL": "C"},
    )


def _answer(running: subprocess.Popen[str] | None, name: str, ends: float) -> str:
    """Return what the program prints.

    Raises:
        RuntimeError: it is not there, fails, or doesn't end in time; the message is what it says itself.
    """
    if running is None:
        raise RuntimeError(f"there is no program {name}")
    try:
        out, err = running.communicate(timeout=max(0.1, ends - time.monotonic()))
    except subprocess.TimeoutExpired:
        running.kill()  # and not waited for: a program that hangs in the driver does not die
        raise RuntimeError(f"{name} did not answer in {_SECONDS:.0f} s") from None
    if running.returncode != 0:
        raise RuntimeError(out.strip() or err.strip() or f"{name} ended with code {running.returncode}")
    return out


def _read(path: str) -> str | None:
    """Return a file's text; None where there is none."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps(look(asked["job_dir"], asked["data_dir"])))
