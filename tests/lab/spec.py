"""What a lab shall be: its nodes, and in what each differs from the others. Pure data."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace

from launcher.errors import RingmasterError

MOST_NODES = 32
_YES = {"1": True, "0": False, "true": True, "false": False}


@dataclass(frozen=True, kw_only=True)
class NodeSpec:
    """One node. The defaults are what a rental hands over: sshd, ufw on, a sudo user, nothing else."""

    name: str
    engine: bool = False
    """The distribution's Docker engine is already there."""
    gpus: int = 0
    """How many GPUs the stand-in nvidia-smi shows; 0: there is no nvidia-smi."""
    gpu_model: str = "NVIDIA A100-SXM4-80GB"
    driver: str = "580.95.05"
    toolkit: bool = False
    """The stand-in runtime hook is there, which makes the real engine accept `--gpus all`."""
    interface: str = "eth0"
    mtu: int = 0
    """Bytes; 0: the lab network's."""
    ssh_port: int = 22
    loopback_name: bool = False
    """The host name stands in /etc/hosts as 127.0.1.1, as Debian's and Ubuntu's installers write it."""
    old_files: bool = False
    """The user's files have a past: authorized_keys without a final newline, a bashrc that returns early."""
    clock: int = 0
    """Seconds that the clock is ahead for whoever logs in."""
    second_interface: bool = False
    """A second network card, and the default route leads out of that one."""
    cores: str = ""
    """The machine's cores it may use, such as 0 or 0-1; empty: all."""
    memory_mb: int = 0
    """Limit in MiB; 0: none."""
    disk_gb: int = 32
    """Its disk's size; only what is written takes room on this machine."""

    @property
    def digest(self) -> str:
        """Changes when a node that is up no longer is what is asked for."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True)
class LabSpec:
    nodes: tuple[NodeSpec, ...]
    registry: bool = False


_TYPES = {field.name: field.type for field in fields(NodeSpec) if field.name != "name"}
SETTINGS = tuple(_TYPES)

# One trait each, in turn, so that every check of a cluster has one node to stumble over.
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
    overrides: Iterable[str] = (),
) -> LabSpec:
    """Describe a lab of `nodes` nodes; `overrides` are words such as `node2:mtu=1300,ssh_port=2222`."""
    if not 1 <= nodes <= MOST_NODES:
        raise RingmasterError(f"NODES={nodes}: a lab has 1 to {MOST_NODES} nodes")
    if not 0 <= gpus <= 16:
        raise RingmasterError(f"GPUS={gpus}: a lab node shows 0 to 16 GPUs")
    specs = {}
    for index in range(nodes):
        # A node with the engine is one that is ready to run jobs: it has the toolkit too.
        spec = NodeSpec(name=f"node{index + 1}", engine=engine, gpus=gpus, toolkit=engine and gpus > 0)
        specs[spec.name] = replace(spec, **_TRAITS[index % len(_TRAITS)]) if unequal else spec  # type: ignore[arg-type]
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
