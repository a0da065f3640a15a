"""A job on several nodes as a simulation in time: ranks, their parents, torchrun's agents, and clocks that are off.

What the programs would print, in the order and with the delays of the real ones, reaches the real `EventIntake` and
`Shutdown`; what these do to the nodes takes effect in the simulation.
"""

import heapq
import io
import itertools
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from launcher.follow import events, node_state, shutdown
from launcher.follow.events import EventIntake
from launcher.follow.node_state import NodeState, ends, told_to_go, unended
from launcher.follow.outcome import Evidence, Outcome, decide
from launcher.follow.shutdown import Shutdown
from launcher.follow.signal_inbox import Role, SignalInbox
from launcher.follow.unseen import unseen
from launcher.job.plan import NodePlan
from launcher.on_node.rank import EVENT, FRAME, LINE
from tests.support.following import Notes
from tests.support.plans import cluster_plan

START, TIMEOUT_S = 1_000_000.0, 300.0
SIGTERM, SIGKILL = 15, 9


@dataclass
class SimRank:
    """A rank's program and its parent."""

    node: "SimNode"
    rank: int
    pid: int
    reacts: str
    """On SIGTERM its program `dies`, `exits` with 143, or is `deaf`: it hangs in a native call."""
    alive: bool = True
    frozen: bool = False
    told: dict[str, Any] | None = None

    def end(
        self, code: int, signal: str | None = None, lines: Sequence[str] = (), error_at: float | None = None
    ) -> None:
        """End; `error_at` is true time."""
        if not self.alive:
            return
        self.alive = False
        for line in lines:
            self.node.emit(self._frame(LINE, line))
        fields: dict[str, Any] = {"exit_code": code, "signal": signal, "error_at": self.node.clock(error_at)}
        if not self.node.job.old:
            fields |= {"at": self.node.clock(self.node.job.now), "told": self.told}
        self.node.emit(self._frame(EVENT, json.dumps({"event": "exited", **fields})))
        self.node.rank_ended(self, code if signal is None else 128 - code)

    def vanish(self) -> None:
        """End together with the parent, which says nothing."""
        if self.alive:
            self.alive = False
            self.node.rank_ended(self, -SIGKILL)

    def print(self, *lines: str) -> None:
        for line in lines:
            self.node.emit(self._frame(LINE, line))

    def started(self) -> None:
        fields = {} if self.node.job.old else {"at": self.node.clock(self.node.job.now)}
        self.node.emit(self._frame(EVENT, json.dumps({"event": "started", "pid": self.pid, **fields})))

    def receive(self) -> None:
        """Be told to end."""
        if not self.alive:
            return
        if self.told is None:
            self.told = {"signal": "SIGTERM", "at": self.node.clock(self.node.job.now)}
            if not self.node.job.old:
                state = "T" if self.frozen else "S"
                self.node.emit(self._frame(EVENT, json.dumps({"event": "told", **self.told, "state": state})))
        if not self.frozen and self.reacts == "dies":
            self.node.job.later(0.002, lambda: self.end(128 + SIGTERM, "SIGTERM"))
        elif not self.frozen and self.reacts == "exits":
            self.node.job.later(0.3, lambda: self.end(128 + SIGTERM))

    def _frame(self, kind: bytes, text: str) -> bytes:
        return FRAME + str(self.rank).encode() + kind + text.encode() + b"\n"


@dataclass
class SimNode:
    """A node: its agent, its ranks' parents, and what of their output has reached the launcher."""

    plan: NodePlan
    job: "SimJob"
    offset_s: float
    """How far its clock is ahead."""
    clock_s: float
    """The same, as measured."""
    ranks: dict[int, int] = field(default_factory=dict)
    lost: str | None = None
    incomplete: str | None = None
    memory: str | None = None
    members: list[SimRank] = field(default_factory=list)
    closing: bool = False
    code: int | None = None
    """The agent's, once the launcher can see it."""
    inbox: list[bytes] = field(default_factory=list)
    over: bool = False

    def clock(self, at: float | None) -> float | None:
        return None if at is None else at + self.offset_s

    def emit(self, data: bytes) -> None:
        self.job.deliver(self, lambda: self.inbox.append(data))

    def say(self, text: str) -> None:
        self.emit(text.encode() + b"\n")

    def rank_ended(self, rank: SimRank, code: int) -> None:
        if code != 0 and not self.closing:
            self.closing = True
            self.job.later(0.08, lambda: self._failed(rank, code))
        elif not any(each.alive for each in self.members):
            self.job.later(0.1, lambda: self.end(1 if self.closing else 0))

    def _failed(self, rank: SimRank, code: int) -> None:
        if not self.over:
            local = rank.rank - self.plan.first_rank
            self.say(
                f"E1122 06:00:00 failed (exitcode: {code}) local_rank: {local} (pid: {rank.pid}) of binary: rank.py"
            )
            self._close()

    def _close(self) -> None:
        self.closing = True
        alive = [each for each in self.members if each.alive]
        for each in alive:
            self.say(f"W1122 06:00:00 Sending process {each.pid} closing signal SIGTERM")
            each.receive()
        if not alive:
            self.job.later(0.2, lambda: self.end(1))
        self.job.later(30.0, self._give_up)

    def _give_up(self) -> None:
        for each in self.members:
            each.vanish()

    def told_to_go(self) -> None:
        """Have the agent receive SIGTERM."""
        if not self.over and not self.closing:
            self.say("W1122 06:00:00 Received 15 death signal, shutting down workers")
            self._close()

    def end(self, code: int) -> None:
        """End the agent; the ranks' parents have ended."""
        if self.over:
            return
        self.over = True

        def seen() -> None:
            self.code = code

        self.job.deliver(self, seen)

    # what the launcher calls

    def fileno(self) -> int:
        raise NotImplementedError

    def read(self) -> bytes:
        data, self.inbox = b"".join(self.inbox), []
        return data

    def poll(self) -> int | None:
        return self.code

    def joined(self) -> bool:
        return bool(self.ranks)

    def out_of_memory(self) -> str | None:
        return self.memory

    def signal_ranks(self, signum: int, only: int | None = None) -> None:
        chosen = [each for each in self.members if only in (None, each.rank)]
        self.job.later(0.03, lambda: [each.receive() for each in chosen])

    def terminate(self) -> None:
        self.signal_ranks(SIGTERM)
        self.job.later(0.03, self.told_to_go)

    def kill(self) -> None:
        def die() -> None:
            for each in self.members:
                each.alive = False
            self.end(-SIGKILL)

        self.job.later(0.03, die)


class SimJob:
    """The job, and the launcher that follows it: from the start, or from `attached_at` on."""

    def __init__(
        self, rng: random.Random, *, nodes: int, ranks: int, attached_at: float = 0.0, old: bool = False
    ) -> None:
        """Args:
        old: the ranks' parents are of an older version, which reports less.
        """
        self.rng, self.old, self.attached_at = rng, old, START + attached_at
        self.now = START
        self._queue: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()
        self._arrival: dict[str, float] = {}
        plan = cluster_plan(nodes)
        self.nodes: list[SimNode] = []
        for number, node in enumerate(plan.nodes):
            offset = rng.uniform(-60, 60)
            whole = replace(node, ranks=ranks, first_rank=number * ranks)
            sim = SimNode(plan=whole, job=self, offset_s=offset, clock_s=offset + rng.uniform(-0.02, 0.02))
            sim.members = [
                SimRank(node=sim, rank=rank, pid=1000 + rank, reacts=rng.choice(["dies", "dies", "exits", "deaf"]))
                for rank in range(number * ranks, (number + 1) * ranks)
            ]
            self.nodes.append(sim)
        self.ranks = [rank for node in self.nodes for rank in node.members]
        self.inbox = SignalInbox(Role(only_follows=False, stops=False, survives=True))
        self.states = [NodeState(node=node, log=io.BytesIO()) for node in self.nodes]
        self.shutdown = Shutdown(self.states)
        self.intake = EventIntake(self.inbox, self.shutdown, Notes())
        for rank in self.ranks:
            self.later(rng.uniform(0.1, 0.3), rank.started)

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        heapq.heappush(self._queue, (self.now + seconds, next(self._order), action))

    def deliver(self, node: SimNode, action: Callable[[], object]) -> None:
        """Have the launcher see something of a node after a while, in the node's order."""
        least = max(self._arrival.get(node.plan.name, 0.0), self.attached_at, self.now)
        at = least + self.rng.uniform(0.0005, 0.02)
        self._arrival[node.plan.name] = at
        heapq.heappush(self._queue, (at, next(self._order), action))

    def run(self) -> Outcome:
        """Let it run to its end; return what the launcher makes of it."""
        while self._queue and any(state.going for state in self.states) and not self.shutdown.given_up():
            at, _, action = heapq.heappop(self._queue)
            self.now = max(self.now, at)
            action()
            if self.now >= self.attached_at:
                self._follow()
        for state in self.states:
            self._read(state)
            if state.memory_query:
                state.memory_query.join()
        return decide(self.evidence())

    def _follow(self) -> None:
        for state in self.states:
            self._read(state)
            self.intake.notice_end(state)
        self.shutdown.run_due(self.now)
        if self.shutdown._scheduled:
            due = min(at for at, _ in self.shutdown._scheduled)
            heapq.heappush(self._queue, (max(due, self.now), next(self._order), lambda: None))

    def _read(self, state: NodeState) -> None:
        node = state.node
        assert isinstance(node, SimNode)
        if node.inbox or (node.code is not None and state.open):
            self.intake.read(state)

    def evidence(self) -> Evidence:
        requests = self.inbox.stop_requests
        return Evidence(
            start_failure=None,
            detached_by=None,
            stopped_by=requests[0] if requests else None,
            ends=tuple(end for state in self.states for end in ends(state)),
            out_of_memory=any(state.out_of_memory for state in self.states),
            refused=False,
            bundled=False,
            failed_first=self.intake.failed_first,
            unended=tuple(rank for state in self.states for rank in unended(state, away=False)),
            told=tuple(told for state in self.states if (told := told_to_go(state))),
            addresses={node.plan.name: node.plan.address for node in self.nodes},
            unseen=unseen([node.plan for node in self.nodes], self.states, {}),
        )


class SimClock:
    """Stands for the module `time` in the parts of the launcher that are under test."""

    def __init__(self) -> None:
        self.job: SimJob | None = None

    def time(self) -> float:
        return self.job.now if self.job else START

    monotonic = time


MODULES = (events, node_state, shutdown)
"""The modules whose `time` is to be a `SimClock`."""
