"""What a node's probe (`launcher/on_node/probe.py`) answered before a job: asked for, read, checked for form. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface, ip_interface
from typing import Any

from launcher.base.errors import ExitCode, RingmasterError
from launcher.base.paths import ON_NODE
from launcher.inventory.hosts import Host, node_folders

_SOURCE = ON_NODE / "probe.py"
_DEVICE = re.compile(r"/dev/infiniband/[\w.-]+|/dev/gdrdrv")


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU as nvidia-smi shows it."""

    index: str
    uuid: str
    model: str
    memory_mib: int | None
    used_mib: int | None
    driver: str
    capability: str = ""
    """Its compute capability, such as 8.9; empty where an older nvidia-smi doesn't say."""


@dataclass(frozen=True, kw_only=True)
class GpuProcess:
    """A process that computes on a GPU."""

    gpu: str
    """The GPU's uuid."""
    pid: int | None
    name: str
    memory_mib: int | None

    def __str__(self) -> str:
        memory = "" if self.memory_mib is None else f", {self.memory_mib} MiB"
        return f"{self.name or 'a process'} (pid {self.pid or '?'}{memory})"


@dataclass(frozen=True, kw_only=True)
class Interface:
    """A network interface with addresses."""

    name: str
    mtu: int
    addresses: tuple[IPv4Interface | IPv6Interface, ...]
    """Those that other machines can be told."""
    every: tuple[str, ...]
    """Also those that are not valid yet, or not for long."""
    first_ipv4: str
    first_ipv6: str
    """What NCCL and Gloo find under the interface's name; empty if there is none."""


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder that jobs use on a node."""

    path: str
    there: bool
    writable: bool
    free: int | None
    """Bytes of its file system."""


@dataclass(frozen=True, kw_only=True)
class ProbeAnswer:
    """What the probe reported. What it could not find out is empty here, and `troubles` says why."""

    uid: int
    gid: int
    user: str
    architecture: str
    """The engine's word for it: amd64, arm64."""
    cores: int
    memory: int
    """Bytes."""
    memlock: int
    """Bytes that a container may be allowed to pin; -1: no limit."""
    clock_s: float
    """Seconds that its clock is ahead of ours."""
    comm_env: Mapping[str, str] | None
    """/etc/ringmaster/comm.env; None if the file doesn't exist."""
    image_record: Mapping[str, str]
    """What the delivery of the image recorded on the node: reference, id, name."""
    interfaces: tuple[Interface, ...]
    firewall: str | None
    """What filters incoming connections by default; empty: nothing does."""
    listening: frozenset[int]
    """TCP ports that something listens on."""
    devices: tuple[str, ...]
    """Device files of InfiniBand."""
    certificates: bool
    """Whether it has a bundle of trusted authorities."""
    job_dir: Folder
    job_there: bool
    """Whether a job of the new one's name has a folder in it."""
    data_dir: Folder
    gpus: tuple[Gpu, ...]
    gpu_problem: str
    """What nvidia-smi prints if it fails."""
    gpu_processes: tuple[GpuProcess, ...]
    troubles: Mapping[str, str]
    """What else the probe could not find out, and why."""


def command(host: Host, job: str) -> tuple[str, ...]:
    """Return the command that runs the probe on a node, before a job of that name; its output is for `parse`."""
    job_dir, data_dir = node_folders(host)
    asked = {"job_dir": job_dir, "data_dir": data_dir, "job": job}
    return ("python3", "-IS", "-c", _SOURCE.read_text(encoding="utf-8"), json.dumps(asked))


def parse(host: Host, output: str, *, heard_at: float, stderr: str = "") -> ProbeAnswer:
    """Read what a node's probe printed.

    Args:
        heard_at: unix time at which the output arrived.
        stderr: what the command printed otherwise if it failed; it becomes the reason if `output` is no answer.

    Raises:
        RingmasterError: it is not a probe's answer.
    """
    try:
        answer = _from_fields(json.loads(output), heard_at)
        folders = node_folders(host)
        if (answer.job_dir.path or folders[0], answer.data_dir.path or folders[1]) != folders:
            raise ValueError("it looked at other folders")
        return answer
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        reason = stderr or f"{type(error).__name__}: {error}"
        raise RingmasterError(
            f"{host.name}: the probe failed ({reason}): a node needs python3, 3.9 or newer, and a shell that runs "
            "commands without printing anything of its own",
            exit_code=ExitCode.NOT_STARTED,
        ) from error


def _from_fields(fields: Mapping[str, Any], heard_at: float) -> ProbeAnswer:
    troubles = dict(fields["troubles"])
    gpu_problem = troubles.pop("gpus", "")
    if gpu_problem:
        troubles.pop("gpu_processes", None)  # nvidia-smi fails there for the same reason
    return ProbeAnswer(
        uid=int(fields["uid"]),
        gid=int(fields["gid"]),
        user=_printable(fields["user"] or fields["uid"]),
        architecture={"x86_64": "amd64", "aarch64": "arm64"}.get(fields["architecture"], fields["architecture"] or ""),
        cores=int(fields["cores"] or 1),
        memory=int(fields["memory"] or 0),
        memlock=-1 if fields["memlock"] is None else int(fields["memlock"]),
        clock_s=float(fields["time"]) - heard_at,
        comm_env=None
        if fields["comm_env"] is None
        else {str(key): str(value) for key, value in fields["comm_env"].items()},
        image_record=fields["image"] if isinstance(fields["image"], dict) else {},
        interfaces=tuple(
            Interface(**{**one, "addresses": tuple(map(ip_interface, one["addresses"])), "every": tuple(one["every"])})
            for one in fields["interfaces"] or ()
        ),
        firewall=fields["firewall"],
        listening=frozenset(map(int, fields["listening"] or ())),
        devices=tuple(path for path in fields["devices"] or () if _DEVICE.fullmatch(path)),
        certificates=bool(fields["certificates"]),
        job_dir=_folder(fields["job_dir"]),
        job_there=bool(fields["job_there"]),
        data_dir=_folder(fields["data_dir"]),
        gpus=tuple(Gpu(**one) for one in fields["gpus"] or ()),
        gpu_problem=gpu_problem,
        gpu_processes=tuple(GpuProcess(**one) for one in fields["gpu_processes"] or ()),
        troubles=troubles,
    )


def _printable(text: object) -> str:
    """Keep only printable characters: the text is shown on a terminal."""
    return "".join(filter(str.isprintable, str(text)))


def _folder(fields: Mapping[str, Any] | None) -> Folder:
    return Folder(**fields) if fields else Folder(path="", there=False, writable=False, free=None)
