"""The docker runtime: a node is a container on a machine, made and started over SSH, everywhere or nowhere."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from docker.errors import APIError

from launcher.base import timings
from launcher.base.errors import RingmasterError
from launcher.cluster import containers
from launcher.cluster.containers import JobContainer
from launcher.cluster.node import DockerNode
from launcher.follow.runtime import NotStartedError
from launcher.job.container import arguments
from launcher.job.plan import NodePlan, Plan
from launcher.ssh.connection import Remote, Trouble
from launcher.ssh.pool import on_all, revived

_PEERS_S = 6.0
"""A node that has been out of our reach for so long is asked for at the other nodes."""
_TRY = (
    "import socket, sys\n"
    # A frozen machine still takes connections; its sshd then says nothing.
    "try:\n    sys.exit(not socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).recv(1))\n"
    "except ConnectionRefusedError:\n    pass\n"
    "except OSError:\n    sys.exit(1)"
)


class DockerRuntime:
    """Starts a job's containers, or finds those that run, and proves at the end that none is left."""

    survives = True

    def __init__(self, plan: Plan, remotes: Mapping[str, Remote], pins: Path, *, attach: bool = False) -> None:
        """Args: attach: follow containers that are there, instead of making them."""
        self._plan = plan
        self._remotes = dict(remotes)
        self._pins = pins
        self._attach = attach
        self._nodes: list[DockerNode] = []
        self._asking = False

    def start(self, nodes: Sequence[NodePlan], port: int) -> list[DockerNode]:
        """Make every container, then start them all; if one can't be, none is left.

        Raises:
            RingmasterError: another job is in the way, or an engine refuses; the message names the node.
        """
        plans = {node.name: node for node in nodes}
        try:
            found = self._find(plans) if self._attach else self._make_and_start(plans)
        except NotStartedError:
            raise
        except RingmasterError as error:  # a connection broke just then
            if self._attach:
                raise  # of a job that runs: nothing is to be said of how it ended
            raise NotStartedError.saying(nodes[0].name, str(error)) from error
        self._nodes = [
            DockerNode(node, self._remotes[node.name], found[node.name], port, self._pins)
            for node in nodes
            if node.name in found  # of what is followed a node may be out of reach, or its container gone
        ]
        return list(self._nodes)

    def sweep(self) -> int:
        """End what still runs of the job on every node that can be reached; what has ended stays to be looked at."""
        for node in self._nodes:
            self._remotes[node.plan.name] = node.remote  # it may have a new connection
        self._end(self._kill_on)
        self.release()
        return 0

    def remove(self) -> list[str]:
        """Remove the job's containers; return the nodes where that was not possible."""
        return self._end(self._remove_on)

    @property
    def gone(self) -> bool:
        """Whether somebody else has cleared a container away before it was seen to end."""
        return any(node.gone for node in self._nodes)

    def release(self) -> None:
        """Follow them no longer; the job goes on."""
        for node in self._nodes:
            node.release()

    def remotes(self) -> dict[str, Remote]:
        """The connections as they are now."""
        return {**self._remotes, **{node.plan.name: node.remote for node in self._nodes}}

    def watch(self) -> list[str]:
        """What is to be said of nodes out of reach; those that nobody reaches become lost."""
        away = [node for node in self._nodes if node.unreachable_since is not None]
        reached = [node for node in self._nodes if node.unreachable_since is None and node.poll() is None]
        late = [
            node for node in away if node.lost is None and time.monotonic() - (node.unreachable_since or 0.0) > _PEERS_S
        ]
        if late and reached and not self._asking:
            self._asking = True
            threading.Thread(target=self._ask_peers, args=(late, reached[0]), daemon=True).start()
        return [node.plan.name for node in away]

    def _ask_peers(self, late: Sequence[DockerNode], peer: DockerNode) -> None:
        """Only our own link may be broken; what another node can't reach either is lost."""
        try:
            for node in late:
                words = ["python3", "-IS", "-c", _TRY, node.plan.address, str(node.remote.port)]
                answer = peer.remote.run(words, limit_s=10)
                if answer.code == 1 and node.unreachable_since is not None:
                    seconds = time.monotonic() - node.unreachable_since
                    node.lost = f"no answer for {seconds:.0f} s, and {peer.plan.name} can't reach it either"
        except RingmasterError:
            pass  # the peer went away too: the next look asks another one
        finally:
            time.sleep(1)
            self._asking = False

    def _find(self, plans: Mapping[str, NodePlan]) -> dict[str, str]:
        found = on_all(self._chosen(plans), lambda remote: containers.find(remote.engine(), self._plan.name))
        # One that was made and never started has nothing to follow.
        return {name: each[0].id for name, each in found.items() if each and each[0].state != "created"}

    def _make_and_start(self, plans: Mapping[str, NodePlan]) -> dict[str, str]:
        chosen = self._chosen(plans)
        try:
            # The first node's first: of two launchers that want the same nodes, one gives way there, before the other
            # could have to elsewhere.
            head = next(iter(chosen))
            made = on_all({head: chosen[head]}, lambda remote: _make(remote, plans[remote.name]))
            others = {name: remote for name, remote in chosen.items() if name != head}
            made |= on_all(others, lambda remote: _make(remote, plans[remote.name]))
            timings.mark("containers made")
            on_all(chosen, lambda remote: _start(remote, made[remote.name]))
            timings.mark("containers started")
        except BaseException as error:
            left = self.remove()
            if left and isinstance(error, RingmasterError):
                error.args = (f"{error}\nsomething may run on {', '.join(left)}: make stop NAME={self._plan.name}",)
            raise
        return made

    def _chosen(self, plans: Mapping[str, NodePlan]) -> dict[str, Remote]:
        return {name: remote for name, remote in self._remotes.items() if name in plans}

    def _end(self, work: Callable[[Remote], None]) -> list[str]:
        """Do `work` on every node; return those that it failed on, or that can't be reached."""
        failed: list[str] = []

        def tried(remote: Remote) -> None:
            try:
                work(remote)
            except Trouble:
                failed.append(remote.name)

        known = self._remotes
        with suppress(RingmasterError):
            self._remotes = {**known, **revived(known, self._pins)}  # Ctrl-C while they were made has closed them
            on_all(self._remotes, tried)
        return [name for name, remote in known.items() if remote.name in failed]

    def _kill_on(self, remote: Remote) -> None:
        client = remote.engine()
        for container in containers.find(client, self._plan.name):
            if container.state in {"running", "paused", "restarting"}:
                containers.kill(client, container)

    def _remove_on(self, remote: Remote) -> None:
        for container in containers.find(remote.engine(), self._plan.name):
            containers.remove(remote.engine(), container.id)


def _make(remote: Remote, node: NodePlan) -> str:
    assert node.container is not None
    client = remote.engine()
    wanted = arguments(node.container, node.argv, node.working_folder, node.environment)
    try:
        made = client.containers.create(**wanted)
    except Trouble as error:
        raise _refused(node.name, error) from error
    found = containers.find(client)
    ours = next(each for each in found if each.id == made.id)
    other = containers.in_the_way(found, ours)
    if other is not None:
        containers.remove(client, ours.id)
        raise busy(node.name, other)
    return str(made.id)


def busy(node: str, other: JobContainer) -> NotStartedError:
    """Another job has the node."""
    return NotStartedError(node, f"job {other.job} has it (make status shows it, make stop NAME={other.job} stops it)")


def _start(remote: Remote, container_id: str) -> None:
    try:
        remote.engine().api.start(container_id)
    except Trouble as error:
        raise _refused(remote.name, error) from error


def _refused(node: str, error: Exception) -> NotStartedError:
    said = error.explanation if isinstance(error, APIError) and error.explanation else str(error)
    return NotStartedError(node, f"its engine refuses the container: {' '.join(str(said).split())}")
