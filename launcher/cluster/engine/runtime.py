"""The docker runtime: a node is a container on a machine, created and started over SSH, everywhere or nowhere."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from docker.errors import APIError

from launcher.base import timings
from launcher.base.errors import RingmasterError
from launcher.cluster.engine import containers
from launcher.cluster.engine.containers import JobContainer
from launcher.cluster.engine.node import DockerNode
from launcher.follow.runtime import NotStartedError
from launcher.job.container import arguments
from launcher.job.plan import NodePlan, Plan
from launcher.ssh.connection import Remote, Trouble
from launcher.ssh.pool import on_all, revived

_PEERS_S = 6.0
"""After this long out of our reach, another node is asked whether it reaches the node."""
_TRY = (
    "import socket, sys\n"
    # A frozen machine still accepts connections, but its sshd sends nothing.
    "try:\n    sys.exit(not socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).recv(1))\n"
    "except ConnectionRefusedError:\n    pass\n"
    "except OSError:\n    sys.exit(1)"
)


class DockerRuntime:
    """Starts a job's containers, or finds those that run, and removes them at the end."""

    survives = True

    def __init__(self, plan: Plan, remotes: Mapping[str, Remote], pins: Path, *, attach: bool = False) -> None:
        """Args: attach: follow the containers that exist, instead of creating them."""
        self._plan = plan
        self._remotes = dict(remotes)
        self._pins = pins
        self._attach = attach
        self._nodes: list[DockerNode] = []
        self._asking = False

    def start(self, nodes: Sequence[NodePlan], port: int) -> list[DockerNode]:
        """Create every container, then start them all; if one fails, none is left.

        Raises:
            RingmasterError: another job is in the way, or an engine refuses; the message names the node.
        """
        plans = {node.name: node for node in nodes}
        try:
            ids = self._find(plans) if self._attach else self._create_and_start(plans)
        except NotStartedError:
            raise
        except RingmasterError as error:  # a connection broke
            if self._attach:
                raise  # the job runs: this says nothing about how it ended
            raise NotStartedError.saying(nodes[0].name, str(error)) from error
        self._nodes = [
            DockerNode(node, self._remotes[node.name], ids[node.name], port, self._pins)
            for node in nodes
            if node.name in ids  # of a job that we only follow, a node may be out of reach or its container gone
        ]
        return list(self._nodes)

    def sweep(self) -> int:
        """End what still runs of the job on every node that can be reached; ended containers stay, to be inspected."""
        for node in self._nodes:
            self._remotes[node.plan.name] = node.remote  # it may have a new connection
        self._end(self._kill_on)
        self.release()
        return 0

    def remove(self) -> list[str]:
        """Remove the job's containers; return the names of the nodes where that failed."""
        return self._end(self._remove_on)

    @property
    def gone(self) -> bool:
        """Whether somebody else removed a container before it was seen to end."""
        return any(node.gone for node in self._nodes)

    def release(self) -> None:
        """Stop following the containers; the job keeps running."""
        for node in self._nodes:
            node.release()

    def remotes(self) -> dict[str, Remote]:
        """Return the connections as they are now."""
        return {**self._remotes, **{node.plan.name: node.remote for node in self._nodes}}

    def watch(self) -> list[str]:
        """Return the names of the nodes out of reach; mark those as lost that other nodes can't reach either."""
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
        """Mark what `peer` can't reach either as lost; if it can, only our own link is broken."""
        try:
            for node in late:
                words = ["python3", "-IS", "-c", _TRY, node.plan.address, str(node.remote.port)]
                answer = peer.remote.run(words, limit_s=10)
                if answer.code == 1 and node.unreachable_since is not None:
                    seconds = time.monotonic() - node.unreachable_since
                    node.lost = f"no answer for {seconds:.0f} s, and {peer.plan.name} can't reach it either"
        except RingmasterError:
            pass  # the peer is out of reach too: the next call of `watch` asks another node
        finally:
            time.sleep(1)
            self._asking = False

    def _find(self, plans: Mapping[str, NodePlan]) -> dict[str, str]:
        known = on_all(self._chosen(plans), lambda remote: containers.find(remote.engine(), self._plan.name))
        # A container that was created and never started prints nothing.
        return {name: each[0].id for name, each in known.items() if each and each[0].state != "created"}

    def _create_and_start(self, plans: Mapping[str, NodePlan]) -> dict[str, str]:
        chosen = self._chosen(plans)
        try:
            # The head's container comes first: if two launchers want the same nodes, one gives way there, before the
            # other might have to give way on another node.
            head = next(iter(chosen))
            ids = on_all({head: chosen[head]}, lambda remote: _create(remote, plans[remote.name]))
            others = {name: remote for name, remote in chosen.items() if name != head}
            ids |= on_all(others, lambda remote: _create(remote, plans[remote.name]))
            timings.mark("containers made")
            on_all(chosen, lambda remote: _start(remote, ids[remote.name]))
            timings.mark("containers started")
        except BaseException as error:
            left = self.remove()
            if left and isinstance(error, RingmasterError):
                error.args = (f"{error}\nsomething may run on {', '.join(left)}: make stop NAME={self._plan.name}",)
            raise
        return ids

    def _chosen(self, plans: Mapping[str, NodePlan]) -> dict[str, Remote]:
        return {name: remote for name, remote in self._remotes.items() if name in plans}

    def _end(self, work: Callable[[Remote], None]) -> list[str]:
        """Do `work` on every node; return the names of those where it failed or that can't be reached."""
        failed: list[str] = []

        def tried(remote: Remote) -> None:
            try:
                work(remote)
            except Trouble:
                failed.append(remote.name)

        known = self._remotes
        with suppress(RingmasterError):
            self._remotes = {**known, **revived(known, self._pins)}  # Ctrl-C during the start has closed them
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


def _create(remote: Remote, node: NodePlan) -> str:
    assert node.container is not None
    client = remote.engine()
    try:
        created = client.containers.create(
            **arguments(node.container, node.argv, node.working_folder, node.environment)
        )
    except Trouble as error:
        raise _refused(node.name, error) from error
    known = containers.find(client)
    ours = next(each for each in known if each.id == created.id)
    other = containers.in_the_way(known, ours)
    if other is not None:
        containers.remove(client, ours.id)
        raise _busy(node.name, other)
    return str(created.id)


def _busy(node: str, other: JobContainer) -> NotStartedError:
    """Return the refusal for a node that another job has."""
    return NotStartedError(node, f"job {other.job} has it (make status shows it, make stop NAME={other.job} stops it)")


def _start(remote: Remote, container_id: str) -> None:
    try:
        remote.engine().api.start(container_id)
    except Trouble as error:
        raise _refused(remote.name, error) from error


def _refused(node: str, error: Exception) -> NotStartedError:
    reason = error.explanation if isinstance(error, APIError) and error.explanation else str(error)
    return NotStartedError(node, f"its engine refuses the container: {' '.join(str(reason).split())}")
