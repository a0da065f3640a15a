"""A lab as a whole: bring it up, take it down, find it again."""

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.models.containers import Container

from lab import registry
from lab.base.place import LABEL, NODE_LABEL, SPEC_LABEL, Place, places
from lab.base.say import say, step
from lab.host import engine, facts, inotify
from lab.image import store
from lab.nodes import access, gpus, network, node, ready
from lab.nodes.access import Door
from lab.nodes.files import Wiring
from lab.nodes.maker import Maker, wire
from lab.nodes.node import SPEC_FILE, Node
from lab.nodes.spec import LabSpec, NodeSpec
from launcher.base.errors import ExitCode, RingmasterError

_LISTED = 4
"""More nodes than so many are said as a range."""
_AT_ONCE = 8
"""Nodes that boot at the same time: each has all its time-outs, however many there are."""


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A lab that is up."""

    place: Place
    nodes: Mapping[str, Node]

    def __getitem__(self, name: str) -> Node:
        if name not in self.nodes:
            raise RingmasterError(f"the lab has no {name}; it has {', '.join(self.nodes)}")
        return self.nodes[name]

    def ssh(self, name: str, *command: str, timeout: float = 60) -> "subprocess.CompletedProcess[str]":
        """Run a command line as the operator would: with ssh, and with nothing but the written files."""
        return ready.ssh(self.place, name, *command, timeout=timeout)


def up(spec: LabSpec, place: Place, *, renew: Sequence[str] = ()) -> Lab:
    """Make the lab what `spec` says: nodes that fit it stay, the others are made, made anew, or removed.

    Nodes named in `renew` are made anew in any case.

    Raises:
        RingmasterError: there is no engine, a tool is missing, or a node does not come up.
    """
    _check_tools()
    client = engine.ensure()
    here = facts.read()
    with _alone():
        place.state.mkdir(parents=True, exist_ok=True)
        place.state.chmod(0o700)
        _provide_inotify(client, place, spec)
        wirings = wire(client, place, spec.nodes, here.mtu)
        main = network.find(client, place, network.MAIN)
        assert main is not None
        maker = Maker(
            client=client,
            place=place,
            host=here,
            public_key=access.provide_key(place),
            network=str(main.name),
            images={kind: store.provide(client, "engine" if kind else "bare", here) for kind in _kinds(spec)},
        )
        present = _nodes(client, place)
        fresh = []
        for wanted in spec.nodes:
            container = present.pop(wanted.name, None)
            stamp = maker.stamp(wanted, wirings[wanted.name])
            whole = (place.node(wanted.name) / SPEC_FILE).exists()
            if container is not None and whole and container.labels[SPEC_LABEL] == stamp and wanted.name not in renew:
                _wake(container)
            else:
                _remove(place, wanted.name, container)
                fresh.append(wanted)
        for name, superfluous in present.items():
            _remove(place, name, superfluous)
        if not any(wiring.second_address for wiring in wirings.values()):
            network.remove(client, place, network.ASIDE)
        lab = _start(client, place, maker, wirings, fresh)
        if spec.registry:
            registry.up(client, place, here, lab.nodes.values())
        else:
            registry.down(client, place)
    return lab


def down(place: Place) -> None:
    """Remove all of this lab: containers, networks, disks, files; with the checkout's last lab, also the images."""
    client = engine.connect()
    with _alone():
        try:
            if client is not None:
                _remove_from_engine(client, place)
            elif place.state.exists():
                say(f"no Docker engine answers: removing only the files of the lab '{place.name}'")
        finally:  # the key is removed in any case; leftovers in the engine are found again by their label
            access.remove(place)
            shutil.rmtree(place.state, ignore_errors=True)
            inotify.give_back(place.label)
        if client is not None and not existing(client):
            store.remove(client)


def existing(client: docker.DockerClient | None) -> list[Place]:
    """Return every lab of this checkout, complete or not."""
    containers = [] if client is None else client.containers.list(all=True, filters={"label": LABEL})
    networks = [] if client is None else client.networks.list(filters={"label": LABEL})
    labels = [container.labels[LABEL] for container in containers]
    return places([*labels, *(network.attrs["Labels"][LABEL] for network in networks)])


def find(place: Place) -> Lab:
    """Return the lab that is up.

    Raises:
        RingmasterError: there is none.
    """
    lab = _attach(engine.needed(), place)
    if not lab.nodes:
        raise RingmasterError("no lab is up; `make lab` starts one", exit_code=ExitCode.NOT_STARTED)
    return lab


def _remove_from_engine(client: docker.DockerClient, place: Place) -> None:
    containers = client.containers.list(all=True, filters=place.filters)
    if containers:
        with step(f"removing {len(containers)} containers"):
            _each(containers, lambda container: container.remove(force=True, v=True))
    for role in (network.MAIN, network.ASIDE):
        network.remove(client, place, role)


def _check_tools() -> None:
    for program, package in (("ssh", "openssh-client"), ("ssh-keygen", "openssh-client"), ("ip", "iproute2")):
        if not shutil.which(program):
            raise RingmasterError(
                f"the lab needs `{program}`, which is not on PATH; install it (package {package})",
                exit_code=ExitCode.NOT_STARTED,
            )


def _provide_inotify(client: docker.DockerClient, place: Place, spec: LabSpec) -> None:
    """Before anything is made: with too few inotify instances, nodes would not boot, and not say why."""
    running = client.containers.list(filters={"label": NODE_LABEL})
    here = {one.labels[NODE_LABEL] for one in running if one.labels[LABEL] == place.label}
    inotify.provide(place.label, len({wanted.name for wanted in spec.nodes} - here), len(running))


def _start(
    client: docker.DockerClient,
    place: Place,
    maker: Maker,
    wirings: Mapping[str, Wiring],
    fresh: Sequence[NodeSpec],
) -> Lab:
    names = [spec.name for spec in fresh]
    what = ", ".join(names) if len(names) <= _LISTED else f"{len(names)} nodes, {names[0]} to {names[-1]}"
    with step(f"starting {what}") if fresh else contextlib.nullcontext():
        _each(fresh, lambda spec: ready.await_systemd(maker.make(spec, wirings[spec.name]), fresh=True))
        lab = _attach(client, place)
        nodes = list(lab.nodes.values())
        new = {spec.name for spec in fresh}
        stayed = [one for one in nodes if one.name not in new]
        _each(stayed, ready.await_systemd)
        _each(stayed, gpus.reset)
        access.write(place, [_door(one) for one in nodes])
        _each(list(lab.nodes), lambda name: ready.await_ssh(place, name))
    return lab


def _kinds(spec: LabSpec) -> set[bool]:
    return {wanted.engine for wanted in spec.nodes}


def _nodes(client: docker.DockerClient, place: Place) -> dict[str, Container]:
    """Return the nodes' containers by name, in order."""
    containers = client.containers.list(all=True, filters=place.filters)
    nodes = [container for container in containers if NODE_LABEL in container.labels]
    nodes.sort(key=lambda container: int(container.labels[NODE_LABEL].removeprefix("node")))
    return {container.labels[NODE_LABEL]: container for container in nodes}


def _attach(client: docker.DockerClient, place: Place) -> Lab:
    containers = _nodes(client, place)
    whole = [name for name in containers if (place.node(name) / SPEC_FILE).exists()]
    return Lab(place=place, nodes={name: node.of_container(containers[name], place) for name in whole})


def _wake(container: Container) -> None:
    """Start a node that was killed, or thaw one that is frozen."""
    if container.status == "paused":
        container.unpause()
    elif container.status != "running":
        container.start()


def _remove(place: Place, name: str, container: Container | None) -> None:
    if container is not None:
        say(f"removing {name}")
        container.remove(force=True, v=True)
    shutil.rmtree(place.node(name), ignore_errors=True)


def _door(one: Node) -> Door:
    host_key = " ".join(one.run("cat", "/etc/ssh/ssh_host_ed25519_key.pub").split()[:2])
    return Door(name=one.name, address=one.address, port=one.spec.ssh_port, host_key=host_key, jump=one.spec.behind)


def _each(items: Sequence, action: Callable) -> None:  # type: ignore[type-arg]
    """Do `action` to all items, some at a time; once all have ended, raise the first failure."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(action, items))


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Let one `up` or `down` of this checkout run at a time: two would make nodes twice, or remove half-made ones.

    The lock is on a folder of the source, so it needs no file of its own, which `down` would have to leave or remove.
    """
    folder = os.open(Path(__file__).parent, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another command or test of this checkout is making or removing a lab: waiting for it")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
