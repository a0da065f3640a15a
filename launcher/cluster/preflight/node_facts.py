"""What nodes told of themselves before a job: read, checked for form, and turned into facts for the plan. Pure."""

import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Interface
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


@dataclass(frozen=True, kw_only=True)
class GpuProcess:
    """A process that computes on a GPU."""

    gpu: str
    """The GPU's uuid."""
    pid: int | None
    name: str
    memory_mib: int | None

    def __str__(self) -> str:
        held = "" if self.memory_mib is None else f", {self.memory_mib} MiB"
        return f"{self.name or 'a process'} (pid {self.pid or '?'}{held})"


@dataclass(frozen=True, kw_only=True)
class Interface:
    """A network interface with IPv4 addresses."""

    name: str
    mtu: int
    addresses: tuple[IPv4Interface, ...]


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
    """What `node_look.py` told; what it could not find out is empty here, and stands in `troubles`."""

    uid: int
    gid: int
    user: str
    host_name: str
    architecture: str
    """The engine's word for it: amd64, arm64."""
    cores: int
    memory: int
    """Bytes."""
    memlock: int
    """Bytes that a container may be allowed to pin; -1: as many as it wants."""
    clock_s: float
    """Seconds that its clock is ahead of ours."""
    comm_env: Mapping[str, str] | None
    """/etc/ringmaster/comm.env; None where there is none."""
    image_record: Mapping[str, str]
    """What the delivery wrote down of the image there: reference, id, name."""
    interfaces: tuple[Interface, ...]
    listening: frozenset[int]
    devices: tuple[str, ...]
    """Device files of InfiniBand."""
    certificates: bool
    """Whether it has a bundle of trusted authorities."""
    job_dir: Folder
    data_dir: Folder
    gpus: tuple[Gpu, ...]
    gpu_problem: str
    """What nvidia-smi says where it fails."""
    gpu_processes: tuple[GpuProcess, ...]
    troubles: Mapping[str, str]
    """What else could not be looked at, and why."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """How the other nodes reach a node."""

    interface: str
    address: IPv4Interface
    mtu: int


def question(host: Host) -> tuple[str, ...]:
    """The command that makes a node tell; what it prints is for `parse`."""
    folders = dict(zip(("job_dir", "data_dir"), node_folders(host), strict=True))
    return ("python3", "-IS", "-c", _SOURCE.read_text(encoding="utf-8"), json.dumps(folders))


def parse(host: Host, answer: str, *, heard_at: float, why: str = "") -> ProbeAnswer:
    """Read a node's answer.

    Args:
        heard_at: unix time at which it came.
        why: what the node said besides, for where the answer is none.

    Raises:
        RingmasterError: it is no answer.
    """
    try:
        look = _look(json.loads(answer), heard_at)
        asked = node_folders(host)
        if (look.job_dir.path or asked[0], look.data_dir.path or asked[1]) != asked:
            raise ValueError("it has looked at other folders")
        return look
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        said = why or f"{type(error).__name__}: {error}"
        raise RingmasterError(
            f"{host.name}: can't be looked at ({said}): it needs python3, 3.9 or newer, and a shell that runs commands "
            "without printing anything of its own",
            exit_code=ExitCode.NOT_STARTED,
        ) from error


def _look(told: Mapping[str, Any], heard_at: float) -> ProbeAnswer:
    troubles = dict(told["troubles"])
    gpu_problem = troubles.pop("gpus", "")
    if gpu_problem:
        troubles.pop("gpu_processes", None)  # the same again
    return ProbeAnswer(
        uid=int(told["uid"]),
        gid=int(told["gid"]),
        user=_printable(told["user"] or told["uid"]),
        host_name=_printable(told["host_name"] or ""),
        architecture={"x86_64": "amd64", "aarch64": "arm64"}.get(told["architecture"], told["architecture"] or ""),
        cores=int(told["cores"] or 1),
        memory=int(told["memory"] or 0),
        memlock=-1 if told["memlock"] is None else int(told["memlock"]),
        clock_s=float(told["time"]) - heard_at,
        comm_env=None
        if told["comm_env"] is None
        else {str(key): str(value) for key, value in told["comm_env"].items()},
        image_record=told["image"] if isinstance(told["image"], dict) else {},
        interfaces=tuple(
            Interface(name=one["name"], mtu=one["mtu"], addresses=tuple(map(IPv4Interface, one["addresses"])))
            for one in told["interfaces"] or ()
        ),
        listening=frozenset(map(int, told["listening"] or ())),
        devices=tuple(path for path in told["devices"] or () if _DEVICE.fullmatch(path)),
        certificates=bool(told["certificates"]),
        job_dir=_folder(told["job_dir"]),
        data_dir=_folder(told["data_dir"]),
        gpus=tuple(Gpu(**one) for one in told["gpus"] or ()),
        gpu_problem=gpu_problem,
        gpu_processes=tuple(GpuProcess(**one) for one in told["gpu_processes"] or ()),
        troubles=troubles,
    )


def _printable(text: object) -> str:
    """It is shown on a terminal."""
    return "".join(filter(str.isprintable, str(text)))


def _folder(told: Mapping[str, Any] | None) -> Folder:
    return Folder(**told) if told else Folder(path="", there=False, writable=False, free=None)


def cluster(host: Host, look: ProbeAnswer) -> Cluster:
    """The interface and address by which the others reach the node: as the inventory says, else as provisioning found.

    Raises:
        ValueError: the node has it not; the message says how to mend that.
    """
    address = str(host.settings.get("cluster_ip") or "")
    name = str(host.settings.get("interface") or "")
    if not name and not address:
        # A list gives Gloo more contexts; the first is the one that counts.
        name = (look.comm_env or {}).get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
        if not name:
            raise ValueError("/etc/ringmaster/comm.env names no GLOO_SOCKET_IFNAME: `make provision TAGS=comm_env`")
    named = [one for one in look.interfaces if not name or one.name == name]
    if not named:
        there = ", ".join(one.name for one in look.interfaces) or "none"
        raise ValueError(
            f"there is no interface '{name}' with an address (there is {there}): mend ringmaster_interface, "
            "or `make provision TAGS=comm_env`"
        )
    for one in named:
        for carried in one.addresses:
            if not address or str(carried.ip) == address:
                return Cluster(interface=one.name, address=carried, mtu=one.mtu)
    there = ", ".join(f"{one.name} {carried.ip}" for one in named for carried in one.addresses)
    raise ValueError(f"no interface has the address {address} (there is {there}): mend ringmaster_cluster_ip")


def shared_network(one: ProbeAnswer, other: ProbeAnswer) -> tuple[str, str] | None:
    """Interfaces by which two nodes are in one network, if there are any; bridges of engines are not."""
    for mine in one.interfaces:
        for theirs in other.interfaces:
            for here in mine.addresses:
                for there in theirs.addresses:
                    if here.ip != there.ip and here.network == there.network and not _local(here):
                        return mine.name, theirs.name
    return None


def _local(address: IPv4Interface) -> bool:
    """Whether it leads to no other machine, or to no other one but by tunnel (a network of one address)."""
    return address.is_loopback or address.network.prefixlen == ipaddress.IPV4LENGTH
