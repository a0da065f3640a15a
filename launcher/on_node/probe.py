"""Reads what a node is: the one reader of nvidia-smi, /proc/net/tcp and the limit of memory.

As a program it prints one JSON object before a job starts: `python3 -IS -c <this source> '{"job_dir": …, "data_dir":
…, "job": …}'`. Each part is read on its own: a part that fails is null, and a line in "troubles" says why. As a module
the launcher imports it, and so do the Ansible modules, by a link in `playbooks/module_utils/ringmaster/core/`. It
therefore stands alone: the standard library of Python 3.9, no sibling imports, nothing installed. It is read-only and
runs as the SSH user, so it leaves out whatever needs root.
"""

from __future__ import annotations

import json
import os
import platform
import pwd
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

_COMM_ENV = "/etc/ringmaster/comm.env"
_IMAGE = "/var/lib/ringmaster/image.json"
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_MEMINFO = "/proc/meminfo"
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_SOCKET_TABLES = ("net/tcp", "net/tcp6")
ESTABLISHED, LISTEN = "01", "0A"
"""A socket's states in the kernel's tables."""
_SOCKET = re.compile(
    r" *\d+: ([0-9A-F]+):([0-9A-F]{4}) [0-9A-F]+:([0-9A-F]{4}) ([0-9A-F]{2})(?: +[0-9A-F]+:[0-9A-F]+){2}"
    r" +[0-9A-F]+ +\d+ +\d+ +(\d+)"
)
_PORTS = range(1024, 65536)
_CAP_SYS_RESOURCE = 24  # linux/capability.h
_SECONDS = 20.0  # for a program to answer: nvidia-smi wakes sleeping GPUs first, and hangs where the driver does
_GPUS = ("index", "uuid", "name", "memory.total", "memory.used", "driver_version")
_CAPABILITY = "compute_cap"
"""Asked for too; nvidia-smi before 2021 doesn't know it, and then says nothing of the rest."""
_PROCESSES = ("gpu_uuid", "pid", "process_name", "used_memory")
_FORMAT = "--format=csv,noheader,nounits"
_UFW = "/usr/sbin/ufw"
_UFW_FILES = ("/etc/ufw/ufw.conf", "/etc/default/ufw")
_WANTS = "/etc/systemd/system/{}.target.wants/{}.service"
_FIREWALLS = {
    "firewalld": _WANTS.format("multi-user", "firewalld"),
    "nftables": _WANTS.format("sysinit", "nftables"),
    "iptables-persistent": _WANTS.format("multi-user", "netfilter-persistent"),
}
_FLEETING = ("tentative", "dadfailed", "deprecated", "temporary")  # as `ip` calls them


class Socket(NamedTuple):
    """A row of /proc/net/tcp or tcp6."""

    address: str
    """The local address in the kernel's hexadecimal form."""
    port: int
    remote_port: int
    state: str
    inode: str


class Question:
    """A program that was started for its answer: it runs while other things are read."""

    def __init__(self, *words: str) -> None:
        self._name = words[0]
        self._ends = time.monotonic() + _SECONDS
        self._process: subprocess.Popen[str] | None = None
        self._trouble = f"there is no program {words[0]}"
        program = program_path(words[0])
        self.installed = program is not None
        if program is None:
            return
        try:
            self._process = subprocess.Popen(
                [program, *words[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env={**os.environ, "LC_ALL": "C"},
            )
        except OSError as error:
            self._trouble = f"{program} can't be started: {error.strerror}"

    def answer(self) -> str:
        """Return what the program prints.

        Raises:
            RuntimeError: it is missing, fails, or doesn't end in time; the message is its own where it prints one.
        """
        if self._process is None:
            raise RuntimeError(self._trouble)
        try:
            out, err = self._process.communicate(timeout=max(0.1, self._ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()  # without waiting: a program that hangs in the driver does not die
            raise RuntimeError(f"{self._name} did not answer in {_SECONDS:.0f} s") from None
        if self._process.returncode != 0:
            raise RuntimeError(out.strip() or err.strip() or f"{self._name} ended with code {self._process.returncode}")
        return out


def look(job_dir: str, data_dir: str, job: str = "") -> dict[str, Any]:
    """Return all that is known of this node, and whether it has a job of that name already."""
    # These three take the most time; they run while the rest is read.
    read_gpus, read_processes = ask_gpus(), ask_gpu_processes()
    ip = Question("ip", "-json", "address", "show")
    parts: dict[str, Callable[[], Any]] = {
        "uid": os.getuid,
        "gid": os.getgid,
        "user": lambda: pwd.getpwuid(os.getuid()).pw_name,
        "architecture": platform.machine,
        "cores": lambda: len(os.sched_getaffinity(0)),
        "memory": memory,
        "memlock": memlock,
        "comm_env": lambda: variables(_read(_COMM_ENV)),
        "image": lambda: json.loads(_read(_IMAGE) or "null"),
        "listening": lambda: listening(socket_tables()),
        "devices": devices,
        "job_dir": lambda: folder(job_dir),
        "job_there": lambda: bool(job) and os.path.lexists(os.path.join(job_dir, job)),
        "data_dir": lambda: folder(data_dir),
        "certificates": lambda: Path(_CERTIFICATES).exists(),
        "interfaces": lambda: interfaces(ip.answer()),
        "firewall": firewall,
        "gpus": read_gpus,
        "gpu_processes": read_processes,
    }
    facts: dict[str, Any] = {"troubles": {}}
    for name, part in parts.items():
        try:
            facts[name] = part()
        except Exception as error:  # whatever it is: the other parts count all the same
            facts[name] = None
            facts["troubles"][name] = " ".join(str(error).split()) or type(error).__name__
    facts["time"] = time.time()  # last: compared with the operator's clock when the answer arrives
    return facts


def program_path(name: str) -> str | None:
    """Return where a program is installed, or None."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"  # a login without a shell's profile may lack these
    return shutil.which(name, path=path)


def variables(text: str | None) -> dict[str, str] | None:
    """Return the variables of an environment file in the form of docker's --env-file; None where there is no file."""
    if text is None:
        return None
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def memory(meminfo: str = _MEMINFO, limits: Iterable[str] = _CGROUP_LIMITS) -> int:
    """Return the bytes of memory: the machine's, or its own cgroup's limit (a container as node) where that is lower.

    Version 1 of cgroups has no word for "no limit" but a number larger than any memory; version 2 says "max".

    Raises:
        ValueError: the kernel doesn't say how much there is.
    """
    lines = (_read(meminfo) or "").splitlines()
    total = next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemTotal:")), None)
    if total is None:
        raise ValueError(f"{meminfo} has no line MemTotal")
    texts = ((_read(path) or "").strip() for path in limits)
    return min([total, *(int(text) for text in texts if text.isdigit())])


def memlock() -> int:
    """Return how many bytes a container may be allowed to pin; -1 stands for no limit.

    An engine without CAP_SYS_RESOURCE (this "machine" is a container itself) can't lift a limit above its own.
    """
    with open("/proc/1/status") as file:
        bounds = next(int(line.split()[1], 16) for line in file if line.startswith("CapBnd:"))
    if bounds >> _CAP_SYS_RESOURCE & 1:
        return -1
    with open("/proc/1/limits") as file:
        hard = next(line.split()[4] for line in file if line.startswith("Max locked memory"))
    return -1 if hard == "unlimited" else int(hard)


def socket_tables(proc: str = "/proc") -> str:
    """Return the kernel's tables of TCP sockets, one below the other; without IPv6 there is only one.

    `proc` is /proc for this process's network, the folder of a process in there for that one's.
    """
    return "".join(_read(f"{proc}/{table}") or "" for table in _SOCKET_TABLES)


def sockets(text: str) -> list[Socket]:
    """Return the rows of one or more of the kernel's tables of TCP sockets."""
    rows = (_SOCKET.match(line) for line in text.splitlines())  # between them: heads, and what a login prints
    return [
        Socket(address=row[1], port=int(row[2], 16), remote_port=int(row[3], 16), state=row[4], inode=row[5])
        for row in rows
        if row
    ]


def listening(text: str) -> list[int]:
    """Return the TCP ports that something listens at, among those that an ordinary user may take."""
    return sorted({one.port for one in sockets(text) if one.state == LISTEN}.intersection(_PORTS))


def devices() -> list[str]:
    """Return the device files with which NCCL uses InfiniBand, and copies between it and GPUs."""
    paths = [*sorted(Path("/dev/infiniband").glob("*")), Path("/dev/gdrdrv")]
    return [str(path) for path in paths if path.is_char_device()]


def folder(path: str) -> dict[str, Any]:
    """Return whether a folder exists, whether we may write to it, and the free bytes of its file system."""
    there = Path(path).is_dir()
    return {
        "path": path,
        "there": there,
        "writable": there and os.access(path, os.W_OK | os.X_OK),
        "free": shutil.disk_usage(path).free if there else None,
    }


def interfaces(text: str) -> list[dict[str, Any]]:
    """Return each interface that has an address, from what `ip -json address show` prints."""
    return [interface(one) for one in json.loads(text) if one.get("addr_info")]


def interface(shown: dict[str, Any]) -> dict[str, Any]:
    """Return an interface as `addresses.py` takes it: name, MTU, and the addresses (with the prefix's length).

    `addresses` are those that other machines can be told; `every` has also those that are not valid yet, or not for
    long. `first_ipv4` and `first_ipv6` are what NCCL and Gloo find under the interface's name: the first of all, but
    for those that have a label of their own (eth0:1).
    """
    carried = [one for one in shown.get("addr_info", []) if "local" in one]
    valid = [one for one in carried if one.get("scope") != "link"]
    lasting = [one for one in valid if not any(one.get(flag) for flag in _FLEETING)]
    named = [one["local"] for one in carried if one.get("label", shown["ifname"]) == shown["ifname"]]
    return {
        "name": shown["ifname"],
        "mtu": shown.get("mtu"),
        "addresses": [f"{one['local']}/{one['prefixlen']}" for one in lasting],
        "every": [one["local"] for one in valid],
        "first_ipv4": next((one for one in named if ":" not in one), ""),
        "first_ipv6": next((one for one in named if ":" in one), ""),
    }


def firewall() -> str:
    """Return what filters incoming connections by default: ufw, another firewall that is switched on, or nothing.

    Only root may ask the kernel, so the files count, which say what is loaded at each boot.
    """
    if os.path.exists(_UFW):
        settings = {**(variables(_read(_UFW_FILES[0])) or {}), **(variables(_read(_UFW_FILES[1])) or {})}
        words = {name: value.strip("\"'").upper() for name, value in settings.items()}
        if words.get("ENABLED") == "YES" and words.get("DEFAULT_INPUT_POLICY") in ("DROP", "REJECT"):
            return "ufw"
    return other_firewall()


def other_firewall() -> str:
    """Return the firewall besides ufw that is switched on, or nothing."""
    return next((name for name, link in _FIREWALLS.items() if os.path.lexists(link)), "")


def ask_gpus() -> Callable[[], list[dict[str, Any]]]:
    """Ask nvidia-smi for the GPUs; return what gives them, as `gpus` does. Without nvidia-smi there are none.

    What is returned raises RuntimeError as `Question.answer` does, and ValueError as `gpus` does.
    """

    def ask(*fields: str) -> Question:
        return Question("nvidia-smi", f"--query-gpu={','.join(fields)}", _FORMAT)

    def answer() -> list[dict[str, Any]]:
        if not question.installed:
            return []
        try:
            return gpus(question.answer(), capability=True)
        except RuntimeError as error:
            if _CAPABILITY not in str(error):
                raise
            return gpus(ask(*_GPUS).answer())

    question = ask(*_GPUS, _CAPABILITY)
    return answer


def ask_gpu_processes() -> Callable[[], list[dict[str, Any]]]:
    """Ask nvidia-smi for the processes on the GPUs; return what gives them, in the same way as `ask_gpus`."""
    question = Question("nvidia-smi", f"--query-compute-apps={','.join(_PROCESSES)}", _FORMAT)
    return lambda: processes(question.answer()) if question.installed else []


def gpus(text: str, *, capability: bool = False) -> list[dict[str, Any]]:
    """Return each GPU; memory in MiB.

    Args:
        capability: whether each line ends with the compute capability.

    Raises:
        ValueError: a line describes no GPU, such as that of one that is lost; the message is the line.
    """
    shown = []
    for line in filter(None, text.splitlines()):
        fields = _fields(line, len(_GPUS) + capability, before=2)
        index, uuid, name, total, used, driver = fields[: len(_GPUS)]
        if not index.isdigit():
            raise ValueError(line)
        shown.append(
            {
                "index": index,
                "uuid": uuid,
                "model": name,
                "memory_mib": _number(total),
                "used_mib": _number(used),
                "driver": driver,
                "capability": fields[-1] if capability else "",
            }
        )
    return shown


def processes(text: str) -> list[dict[str, Any]]:
    """Return each process that computes on a GPU; memory in MiB.

    Raises:
        ValueError: a line describes no process; the message is the line.
    """
    shown = []
    for line in filter(None, text.splitlines()):
        gpu, pid, name, used = _fields(line, len(_PROCESSES), before=2)
        shown.append({"gpu": gpu, "pid": _number(pid), "name": Path(name).name, "memory_mib": _number(used)})
    return shown


def _fields(line: str, count: int, *, before: int) -> list[str]:
    """Return a line's fields. The one after the first `before`, a name, may contain commas: nvidia-smi quotes none."""
    words = [word.strip() for word in line.split(",")]
    if len(words) < count:
        raise ValueError(line)
    after = len(words) - (count - before - 1)
    return [*words[:before], ", ".join(words[before:after]), *words[after:]]


def _number(text: str) -> int | None:
    """Return a number, or None where nvidia-smi has none to show, such as [N/A]."""
    return int(text) if text.isdigit() else None


def _read(path: str) -> str | None:
    """Return a file's text; None where there is no file."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


if __name__ == "__main__":
    print(json.dumps(look(**json.loads(sys.argv[1]))))
