"""A lab as a whole: bring it up, take it down, find it again."""

import contextlib
import fcntl
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import docker
from docker.models.containers import Container

from launcher.errors import ExitCode, RingmasterError
from tests.lab import access, engine, host, image, making, network, node, ready, registry
from tests.lab.access import Door
from tests.lab.files import Wiring
from tests.lab.making import Maker
from tests.lab.node import SPEC_FILE, Node
from tests.lab.place import NODE_LABEL, SPEC_LABEL, STATE, Place
from tests.lab.say import say, step
from tests.lab.spec import LabSpec, NodeSpec


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
        """Run a command line as the operator would: by ssh, with the written files alone."""
        return ready.ssh(self.place, name, *command, timeout=timeout)


def up(spec: LabSpec, place: Place, *, renew: Sequence[str] = ()) -> Lab:
    """Make the lab what `spec` says: nodes that are so already stay, the others are made, made anew, or removed.

    Those named in `renew` are made anew in any case.
    """
    client = engine.ensure()
    here = host.read()
    with _alone(place):
        wirings = making.wire(client, place, spec.nodes, here.mtu)
        main = network.find(client, place, network.MAIN)
        assert main is not None
        maker = Maker(
            client=client,
            place=place,
            host=here,
            public_key=access.provide_key(place),
            network=str(main.name),
            images={kind: image.provide(client, "engine" if kind else "bare", here) for kind in _kinds(spec)},
        )
        present = _nodes(client, place)
        fresh = []
        for wanted in spec.nodes:
            found = present.pop(wanted.name, None)
            stamp = maker.stamp(wanted, wirings[wanted.name])
            whole = (place.node(wanted.name) / SPEC_FILE).exists()
            if found is not None and whole and found.labels[SPEC_LABEL] == stamp and wanted.name not in renew:
                _wake(found)
            else:
                _remove(place, wanted.name, found)
                fresh.append(wanted)
        for name, found in present.items():
            _remove(place, name, found)
        lab = _start(client, place, maker, wirings, fresh)
        if spec.registry:
            registry.up(client, place, here, lab.nodes.values())
        else:
            registry.down(client, place)
    return lab


def down(place: Place) -> None:
    """Remove everything of this lab: containers, networks, disks, files; with the checkout's last lab, the images."""
    client = engine.connect()
    if client is not None:
        containers = client.containers.list(all=True, filters=place.filters)
        if containers:
            with step(f"removing {len(containers)} containers"):
                _each(containers, lambda found: found.remove(force=True, v=True))
        for found in client.networks.list(filters=place.filters):
            found.remove()
    elif place.state.exists():
        say("no Docker engine answers: removing this lab's files only")
    access.remove(place)
    shutil.rmtree(place.state, ignore_errors=True)
    if client is not None and not any(STATE.glob("*/nodes")):
        image.remove(client)


def find(place: Place) -> Lab:
    """Return the lab that is up.

    Raises:
        RingmasterError: there is none.
    """
    lab = _attach(engine.needed(), place)
    if not lab.nodes:
        raise RingmasterError("no lab is up; `make lab` starts one", exit_code=ExitCode.NOT_STARTED)
    return lab


def _start(
    client: docker.DockerClient,
    place: Place,
    maker: Maker,
    wirings: Mapping[str, Wiring],
    fresh: Sequence[NodeSpec],
) -> Lab:
    what = ", ".join(spec.name for spec in fresh)
    with step(f"starting {what}") if fresh else contextlib.nullcontext():
        _each(fresh, lambda spec: maker.make(spec, wirings[spec.name]))
        lab = _attach(client, place)
        _each(list(lab.nodes.values()), ready.await_systemd)
        access.write(place, [_door(found) for found in lab.nodes.values()])
        _each(list(lab.nodes), lambda name: ready.await_ssh(place, name))
    return lab


def _kinds(spec: LabSpec) -> set[bool]:
    return {wanted.engine for wanted in spec.nodes}


def _nodes(client: docker.DockerClient, place: Place) -> dict[str, Container]:
    """The nodes' containers by name, in order."""
    found = client.containers.list(all=True, filters=place.filters)
    nodes = [container for container in found if NODE_LABEL in container.labels]
    nodes.sort(key=lambda container: int(container.labels[NODE_LABEL].removeprefix("node")))
    return {container.labels[NODE_LABEL]: container for container in nodes}


def _attach(client: docker.DockerClient, place: Place) -> Lab:
    whole = {name: found for name, found in _nodes(client, place).items() if (place.node(name) / SPEC_FILE).exists()}
    return Lab(place=place, nodes={name: node.of_container(found, place) for name, found in whole.items()})


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


def _door(found: Node) -> Door:
    host_key = " ".join(found.run("cat", "/etc/ssh/ssh_host_ed25519_key.pub").split()[:2])
    return Door(name=found.name, address=found.address, port=found.spec.ssh_port, host_key=host_key)


def _each(items: Sequence, action: Callable) -> None:  # type: ignore[type-arg]
    """Do it to all at the same time; the first failure is raised once all have ended."""
    if items:
        with ThreadPoolExecutor(len(items)) as pool:
            list(pool.map(action, items))


@contextlib.contextmanager
def _alone(place: Place) -> Iterator[None]:
    """One `up` of a lab at a time: two would make each node twice."""
    place.state.mkdir(parents=True, exist_ok=True)
    with (place.state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
