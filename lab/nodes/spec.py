"""What a lab is asked to be: its nodes, and how each differs from the others. Pure data."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from lab.base import check
from launcher.base.errors import RingmasterError

MOST_NODES = 32
MOST_GPUS = 16
MOST_SECONDS = 10**9  # about 30 years
LEAST_MEMORY_MB, MOST_MEMORY_MB = 128, 1 << 22  # with less, a node's systemd does not survive
DRIVER = r"\d{1,4}(\.\d{1,4}){1,2}"
_YES = {"1": True, "0": False, "true": True, "false": False}


def _setting(default: Any, meaning: str) -> Any:
    """A field that `--node` can set, with what it means there."""
    return field(default=default, metadata={"help": meaning})


@dataclass(frozen=True, kw_only=True)
class NodeSpec:
    """One node. The defaults are those of a rented machine: sshd, ufw on, a sudo user, nothing else."""

    name: str
    engine: bool = _setting(False, "the distribution's Docker engine is already there")
    gpus: int = _setting(0, f"GPUs that the stand-in nvidia-smi shows, up to {MOST_GPUS}; 0: there is no nvidia-smi")
    gpu_model: str = _setting("NVIDIA A100-SXM4-80GB", "their name")
    driver: str = _setting("580.95.05", "version of their driver")
    toolkit: bool = _setting(False, "the stand-in runtime hook is there, so that the engine accepts `--gpus all`")
    interface: str = _setting("eth0", "name of the network card")
    mtu: int = _setting(0, "576 to 9000 bytes; 0: the lab network's")
    ssh_port: int = _setting(22, "where sshd listens")
    max_startups: str = _setting("", "sshd's MaxStartups, such as 10:30:100; empty: sshd's own default")
    behind: str = _setting("", "another node: the operator reaches this one only through it (a jump host)")
    loopback_name: bool = _setting(False, "its host name is 127.0.1.1, as the installers of Debian and Ubuntu set it")
    old_files: bool = _setting(False, "authorized_keys without a final newline, a bashrc that returns early")
    clock: int = _setting(0, "how many seconds the clock is ahead for every login")
    second_interface: bool = _setting(False, "a second network card, and the default route goes through it")
    cores: str = _setting("", "the cores of this machine that it may use, such as 0 or 0-1; empty: all")
    memory_mb: int = _setting(0, f"limit in MiB, {LEAST_MEMORY_MB} or more; 0: none")
    disk_gb: int = _setting(32, "size of its disk, 1 to 1024; only what is written takes room here")

    def __post_init__(self) -> None:
        what = f"--node {self.name}:"
        check.number(f"{what}gpus", self.gpus, 0, MOST_GPUS)
        check.pattern(f"{what}gpu_model", self.gpu_model, r"[\w .()/-]{1,60}", "a GPU's name")
        check.pattern(f"{what}driver", self.driver, DRIVER, "a version such as 580.95.05")
        check.interface(f"{what}interface", self.interface)
        check.number(f"{what}mtu", self.mtu, 576, 9000, or_none=True)
        check.number(f"{what}ssh_port", self.ssh_port, 1, 65535)
        check.pattern(f"{what}max_startups", self.max_startups, r"(\d{1,4}(:\d{1,3}:\d{1,4})?)?", "such as 10:30:100")
        check.number(f"{what}clock", self.clock, -MOST_SECONDS, MOST_SECONDS)
        check.number(f"{what}memory_mb", self.memory_mb, LEAST_MEMORY_MB, MOST_MEMORY_MB, or_none=True)
        check.number(f"{what}disk_gb", self.disk_gb, 1, 1024)
        if self.cores:
            check.cores(f"{what}cores", self.cores)

    @property
    def digest(self) -> str:
        """A hash that differs if a node that is up is no longer what the lab is asked to be."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True)
class LabSpec:
    """A lab."""

    nodes: tuple[NodeSpec, ...]
    registry: bool = False

    def __post_init__(self) -> None:
        direct = [node.name for node in self.nodes if not node.behind]
        for node in self.nodes:
            if node.behind and node.behind not in direct:
                raise RingmasterError(
                    f"--node {node.name}:behind={node.behind}: must be a node that is reached directly: "
                    f"{', '.join(direct) or 'there is none'}"
                )


_TYPES = {setting.name: setting.type for setting in fields(NodeSpec) if setting.name != "name"}
SETTINGS = {setting.name: setting.metadata["help"] for setting in fields(NodeSpec) if setting.name in _TYPES}
"""The meaning of each."""

# The nodes get these in turn, so that every check of a cluster has one node to stumble over.
_TRAITS: tuple[dict[str, object], ...] = (
    {"interface": "ens5", "loopback_name": True},
    {"ssh_port": 2222, "old_files": True, "mtu": 1300},
    {"second_interface": True, "clock": 30, "loopback_name": True},
)


def lab(
    *,
    nodes: int,
    engine: bool = False,
    gpus: int = 0,
    unequal: bool = False,
    registry: bool = False,
    jump: bool = False,
    overrides: Iterable[str] = (),
) -> LabSpec:
    """Describe a lab of `nodes` nodes; `overrides` are words such as `node2:mtu=1300,ssh_port=2222`.

    With `jump` the operator reaches all nodes through the last one, whose sshd has the MaxStartups of most machines.
    """
    check.number("NODES", nodes, 1, MOST_NODES)
    check.number("GPUS", gpus, 0, MOST_GPUS)
    specs = {}
    for index in range(nodes):
        # Stand-in GPUs come with the stand-in for the toolkit: NVIDIA's own would find no GPU.
        spec = NodeSpec(name=f"node{index + 1}", engine=engine, gpus=gpus, toolkit=gpus > 0)
        specs[spec.name] = replace(spec, **_TRAITS[index % len(_TRAITS)]) if unequal else spec  # type: ignore[arg-type]
    if jump:
        check.number("JUMP=1: NODES", nodes, 2, MOST_NODES)
        last = f"node{nodes}"
        specs = {name: replace(spec, behind="" if name == last else last) for name, spec in specs.items()}
        specs[last] = replace(specs[last], max_startups="10:30:100")
    for word in overrides:
        name, _, settings = word.partition(":")
        if name not in specs:
            raise RingmasterError(f"--node {word}: there is no {name}; there are {', '.join(specs)}")
        specs[name] = override(specs[name], settings)
    return LabSpec(nodes=tuple(specs.values()), registry=registry)


def override(spec: NodeSpec, settings: str) -> NodeSpec:
    """Return `spec` with settings such as `mtu=1300,interface=ens5` in place of its own."""
    changed: dict[str, object] = {}
    for setting in filter(None, settings.split(",")):
        key, separator, text = setting.partition("=")
        if not separator or key not in _TYPES:
            raise RingmasterError(f"--node {spec.name}:{setting}: known settings are {', '.join(SETTINGS)}")
        changed[key] = _value(f"{spec.name}:{setting}", _TYPES[key], text)
    return replace(spec, **changed)  # type: ignore[arg-type]


def _value(what: str, kind: object, text: str) -> object:
    if kind is bool:
        if text.lower() not in _YES:
            raise RingmasterError(f"--node {what}: say 1 or 0")
        return _YES[text.lower()]
    if kind is int:
        try:
            return int(text)
        except ValueError:
            raise RingmasterError(f"--node {what}: '{text}' is not a number") from None
    return text
