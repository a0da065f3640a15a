"""The docker runtime: a node is a container on a machine, created and started over SSH, everywhere or nowhere."""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from launcher.base import timings
from launcher.base.errors import RingmasterError
from launcher.cluster.engine import containers
from launcher.cluster.engine.containers import JobContainer
from launcher.cluster.engine.node import DockerNode
from launcher.cluster.peer_view import PeerView, Verdict, judge, parse, question, sum_up
from launcher.follow.runtime import NotStartedError
from launcher.job.container import arguments
from launcher.job.plan import NodePlan, Plan
from launcher.ssh.connection import Remote, Trouble
from launcher.ssh.pool import on_all, revived

_GONE = "container gone"
_PEERS_S = 6.0
"""After this long out of our reach, another node is asked whether it reaches the node."""
_VIEW_S = 12.0
"""For a node's view of another one."""
_PAUSE_S = 1.0
"""Between two rounds of questions."""
_ALONE_S = 300.0
"""After this long out of our reach, a node is given up that no other node of the job can be asked about."""
_REMINDER_S = 60.0
_WELL_S = 5.0
"""After this long at the latest, the nodes look at each other, so that it is known what answers while all is well."""
_PEERS = 3
"""So many other nodes are asked at most."""


class DockerRuntime:
    """Starts a job's containers, or finds those that run, and removes them at the end."""

    survives = True

    def __init__(
        self,
        plan: Plan,
        remotes: Mapping[str, Remote],
        pins: Path,
        *,
        attach: bool = False,
        before_start: Callable[[Remote], object] | None = None,
    ) -> None:
        """Args:
        attach: follow the containers that exist, instead of creating them.
        before_start: called for each node before its container is started.
        """
        self._plan = plan
        self._remotes = dict(remotes)
        self._pins = pins
        self._attach = attach
        self._before_start = before_start
        self._absent: dict[str, str] = {}
        self._nodes: list[DockerNode] = []
        self._asking = False
        self._started_at = time.monotonic()
        self._well: dict[str, PeerView | None] | None = None
        """How each node answered another one while all was well; None: nobody has looked yet."""
        self._news: deque[str] = deque()
        self._reminded_s: dict[str, float] = {}
        """How long each node that is alone had been silent when the user was last told."""
        self._verdicts: dict[str, Verdict] = {}
        """What others can say of the nodes out of reach, as the user was told."""
        self._told: set[str] = set()

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

    def remove(self, chosen: Collection[str]) -> list[str]:
        """Remove the job's containers on the chosen nodes; return the names of those where that failed."""
        return self._end(self._remove_on, chosen)

    def unseen(self) -> dict[str, str]:
        """Return, by node, why its container can't tell how it ended."""
        return {**self._absent, **{node.plan.name: _GONE for node in self._nodes if node.gone}}

    def release(self) -> None:
        """Stop following the containers; the job keeps running."""
        for node in self._nodes:
            node.release()

    def remotes(self) -> dict[str, Remote]:
        """Return the connections as they are now."""
        return {**self._remotes, **{node.plan.name: node.remote for node in self._nodes}}

    def watch(self) -> list[str]:
        """Return the names of the nodes out of reach; mark those as lost of which that is known."""
        running = [node for node in self._nodes if node.poll() is None]
        away = [node for node in running if node.unreachable_since is not None]
        reached = [node for node in self._nodes if node not in away]  # also those whose container has ended
        for name in {node.plan.name for node in self._nodes if node not in away}:
            self._verdicts.pop(name, None)
            self._reminded_s.pop(name, None)
        late = [node for node in away if node.lost is None and _silent_s(node) > _PEERS_S]
        if late == running and len(late) == 1:  # no other will fail, and end the job, because this one is missing
            self._count_down(late[0])
        if late and reached and not self._asking:
            self._in_thread(lambda: self._ask_peers(late, reached[:_PEERS]))
        all_well = len(running) == len(self._nodes) > 1 and not away
        if self._well is None and all_well and not self._asking and self._settled():
            self._in_thread(self._look_while_well)
        return [node.plan.name for node in away]

    def news(self) -> list[str]:
        """Return what the user should know of the nodes, each once."""
        sources = (self._news, *(node.news for node in self._nodes))
        return [source.popleft() for source in sources for _ in range(len(source))]

    def _settled(self) -> bool:
        """Return whether looking at nodes holds up nobody's start any more."""
        late = time.monotonic() - self._started_at > _WELL_S
        return late or all(node.joined() for node in self._nodes)

    def _in_thread(self, work: Callable[[], None]) -> None:
        """Ask nodes something in a thread, one such at a time; an error is tried again, and told once."""

        def ask() -> None:
            try:
                work()
            except RingmasterError:
                pass  # the peer is out of reach too: the next call of `watch` asks another node
            except Exception as error:  # nobody else would hear of it
                self._tell_once(f"the nodes can't be asked about each other ({containers.reason(error)})")
            finally:
                time.sleep(_PAUSE_S)
                self._asking = False

        self._asking = True
        threading.Thread(target=ask, daemon=True).start()

    def _look_while_well(self) -> None:
        """Note how each node answers the next one: later, only what had answered can fall silent."""
        well: dict[str, PeerView | None] = {}
        for node, peer in zip(self._nodes, [*self._nodes[1:], self._nodes[0]], strict=True):
            well[node.plan.name] = self._view(node, peer)
        self._well = well

    def _view(self, node: DockerNode, peer: DockerNode) -> PeerView | None:
        words = question(node.plan.address, node.remote.port)
        return parse(peer.remote.run(words, limit_s=_VIEW_S).text)

    def _ask_peers(self, late: Sequence[DockerNode], peers: Sequence[DockerNode]) -> None:
        """Mark those as lost whom other nodes had an answer from, and have none any more."""
        for node in late:
            verdicts = {}
            for peer in peers:
                view = self._view(node, peer)
                before = (self._well or {}).get(node.plan.name)
                verdicts[peer.plan.name] = judge(view, before, silent_s=_silent_s(node)) if view else Verdict.UNKNOWN
            if node.unreachable_since is None:  # it has answered meanwhile
                continue
            verdict, names = sum_up(verdicts)
            who, known = ", ".join(names), self._verdicts.get(node.plan.name)
            self._verdicts[node.plan.name] = verdict
            if verdict is Verdict.SILENT:
                node.lost = f"no answer for {_silent_s(node):.0f} s, and {who} can't reach it either"
            elif verdict is not known:
                self._news.append(f"{node.plan.name}: {_explanation(verdict, who)}")

    def _count_down(self, node: DockerNode) -> None:
        """Give up a node that no other can be asked about, after a while that the user is told of."""
        name, silent_s = node.plan.name, _silent_s(node)
        if self._verdicts.get(name) is Verdict.RUNS:
            return
        if silent_s >= _ALONE_S:
            node.lost = (
                f"no answer for {silent_s:.0f} s, and no other node of the job can tell: it may still run "
                f"(make logs NAME={self._plan.name} follows it again)"
            )
        elif silent_s - self._reminded_s.get(name, -_REMINDER_S) >= _REMINDER_S:
            self._reminded_s[name] = silent_s
            left_s = _ALONE_S - silent_s
            self._news.append(f"{name}: no answer for {silent_s:.0f} s; it counts as lost in {left_s:.0f} s")

    def _tell_once(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            self._news.append(line)

    def _find(self, plans: Mapping[str, NodePlan]) -> dict[str, str]:
        known = on_all(self._chosen(plans), lambda remote: containers.find(remote.engine(), self._plan.name))
        self._absent = {name: _absence(known.get(name)) for name in plans if not _tells(known.get(name))}
        return {name: each[0].id for name, each in known.items() if _tells(each)}

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
            on_all(chosen, lambda remote: self._start(remote, ids[remote.name]))
            timings.mark("containers started")
        except BaseException as error:
            left = self.remove(chosen)
            if left and isinstance(error, RingmasterError):
                error.args = (f"{error}\nsomething may run on {', '.join(left)}: make stop NAME={self._plan.name}",)
            raise
        return ids

    def _chosen(self, plans: Mapping[str, NodePlan]) -> dict[str, Remote]:
        return {name: remote for name, remote in self._remotes.items() if name in plans}

    def _start(self, remote: Remote, container_id: str) -> None:
        if self._before_start is not None:
            self._before_start(remote)
        try:
            remote.engine().api.start(container_id)
        except Trouble as error:
            raise _refused(remote.name, error) from error

    def _end(self, work: Callable[[Remote], None], chosen: Collection[str] | None = None) -> list[str]:
        """Do `work` on every node, or the chosen ones; return where it failed, or who can't be reached."""
        failed: list[str] = []

        def tried(remote: Remote) -> None:
            try:
                work(remote)
            except Trouble:
                failed.append(remote.name)

        known = {name: remote for name, remote in self._remotes.items() if chosen is None or name in chosen}
        with suppress(RingmasterError):
            known |= revived(known, self._pins)  # Ctrl-C during the start has closed them
            self._remotes |= known
            on_all(known, tried)
        return [name for name, remote in known.items() if remote.name in failed]

    def _kill_on(self, remote: Remote) -> None:
        client = remote.engine()
        for container in containers.find(client, self._plan.name):
            if container.state in {"running", "paused", "restarting"}:
                containers.kill(client, container)

    def _remove_on(self, remote: Remote) -> None:
        for container in containers.find(remote.engine(), self._plan.name):
            containers.remove(remote.engine(), container.id)


def _silent_s(node: DockerNode) -> float:
    since = node.unreachable_since
    return 0.0 if since is None else time.monotonic() - since


def _explanation(verdict: Verdict, who: str) -> str:
    if verdict is Verdict.RUNS:
        return f"{who} reaches it: only the line from here is broken"
    return f"{who} can't tell whether it still runs"


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


def _tells(known: Sequence[JobContainer] | None) -> bool:
    """Return whether a node's containers tell of the job: one that was never started prints nothing."""
    return known is not None and bool(known) and known[0].state != "created"


def _absence(known: Sequence[JobContainer] | None) -> str:
    """Why a node's containers tell nothing; None: it could not be asked."""
    if known is None:
        return "out of reach"
    return "container never started" if known else _GONE


def _refused(node: str, error: Exception) -> NotStartedError:
    return NotStartedError(node, f"its engine refuses the container: {containers.reason(error)}")
