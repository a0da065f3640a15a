"""Makes nodes: the container's settings, and the files that it finds at its first boot."""

import io
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import docker
from docker.models.containers import Container
from docker.types import Mount

from lab.base.place import LABEL, NODE_LABEL, SPEC_LABEL, Place
from lab.host.facts import Host
from lab.nodes import files, gpus, network
from lab.nodes.files import Wiring
from lab.nodes.node import SPEC_FILE, Node
from lab.nodes.spec import NodeSpec
from launcher.base import atomic_file

SHARED = "/ringmaster-lab"
# `--security-opt systempaths=unconfined` of the command line: /proc and /sys as a machine's root sees them.
_BARE_PATHS: dict[str, Any] = {"MaskedPaths": [], "ReadonlyPaths": []}


@dataclass(frozen=True, kw_only=True)
class Maker:
    """Everything that the nodes of a lab have in common, to make them with."""

    client: docker.DockerClient
    place: Place
    host: Host
    public_key: str
    network: str
    images: Mapping[bool, str]
    """The image ids: False: without an engine, True: with one."""

    def stamp(self, spec: NodeSpec, wiring: Wiring) -> str:
        """Return a text that differs if a node must be made anew to be what the lab is asked to be."""
        image = self.images[spec.engine].removeprefix("sha256:")[:12]
        return f"{spec.digest}-{image}-{wiring.address}-{wiring.second_address}"

    def make(self, spec: NodeSpec, wiring: Wiring) -> Node:
        """Make one node, start its boot, and return it."""
        folder = self.place.node(spec.name)
        _prepare(folder, spec, wiring)
        api = self.client.api
        created = api.create_container(
            self.images[spec.engine],
            ["/usr/lib/ringmaster-lab/start-node"],
            name=f"ringmaster-{self.place.label}-{spec.name}",
            hostname=spec.name,
            labels={LABEL: self.place.label, NODE_LABEL: spec.name, SPEC_LABEL: self.stamp(spec, wiring)},
            stop_signal="SIGRTMIN+3",  # tells systemd to halt
            host_config={**api.create_host_config(**host_arguments(spec, folder, self.network)), **_BARE_PATHS},
            # The address stays the node's own across its reboots.
            networking_config={
                "EndpointsConfig": {self.network: api.create_endpoint_config(ipv4_address=wiring.address)}
            },
        )
        container = self.client.containers.get(created["Id"])
        if wiring.second_address:
            aside = network.find(self.client, self.place, network.ASIDE)
            assert aside is not None
            aside.connect(container, ipv4_address=wiring.second_address)
        node = Node(name=spec.name, spec=spec, address=wiring.address, folder=folder, container=container)
        known = _read(container, files.BUNDLE)
        node.place(files.first_boot(spec, wiring, self.host, self.public_key, known))
        container.start()
        # Last: a node without this file was interrupted while it was made.
        atomic_file.write_json(folder / SPEC_FILE, asdict(spec))
        return node


def host_arguments(spec: NodeSpec, folder: Path, network_name: str) -> dict[str, Any]:
    """Return the engine's settings for a node's container, with the reason for each."""
    return {
        # Not `privileged`: that fails where this machine itself lacks a capability, as rented containers do. Instead,
        # everything that a machine's root has, except the capability that is missing most often.
        "cap_add": ["ALL"],
        "cap_drop": ["SYS_RESOURCE"],
        "security_opt": ["seccomp=unconfined", "apparmor=unconfined", "label=disable"],
        "device_cgroup_rules": ["a *:* rwm"],  # loop devices for the disk, and those that the node's engine makes
        # A private view even on cgroup v1, where it isn't the default. Then everything that the node's own engine
        # starts is below the node's cgroup, so that the node's limits hold for it, and ends with the node.
        "cgroupns": "private",
        "tmpfs": {"/run": "", "/run/lock": ""},  # systemd's own, as on a machine
        "mounts": [Mount(SHARED, str(folder), type="bind")],
        "network_mode": network_name,
        "restart_policy": {"Name": "unless-stopped"},  # `reboot` inside a node ends its container
        "cpuset_cpus": spec.cores or None,
        "mem_limit": f"{spec.memory_mb}m" if spec.memory_mb else None,
        "memswap_limit": f"{spec.memory_mb}m" if spec.memory_mb else None,
    }


def wire(client: docker.DockerClient, place: Place, specs: tuple[NodeSpec, ...], mtu: int) -> dict[str, Wiring]:
    """Give every node its addresses; make the second network only if a node wants it."""
    _, main = network.provide(client, place, network.MAIN, mtu)
    aside = None  # if one is left over, it is removed once no node is in it
    if any(spec.second_interface for spec in specs):
        _, aside = network.provide(client, place, network.ASIDE, mtu)
    wirings = {}
    for spec in specs:
        number = int(spec.name.removeprefix("node")) - 1
        second = aside if spec.second_interface else None
        wirings[spec.name] = Wiring(
            address=main.node(number),
            gateway=main.gateway,
            subnet=main.cidr,
            second_address=second.node(number) if second else "",
            second_gateway=second.gateway if second else "",
        )
    return wirings


def _prepare(folder: Path, spec: NodeSpec, wiring: Wiring) -> None:
    """Lay out the folder that a new node finds as /ringmaster-lab: an empty disk, its settings, its GPUs."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "settings").write_text(files.settings(spec, wiring))
    gpus.write(folder, gpus.initial(spec))
    (folder / "kernel.log").touch()
    with (folder / "disk.img").open("wb") as disk:
        disk.truncate(spec.disk_gb << 30)  # sparse: takes only what is written


def _read(container: Container, path: str) -> str:
    chunks, _ = container.get_archive(path)
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
        member = tar.extractfile(tar.getmembers()[0])
        return member.read().decode(errors="replace") if member else ""
