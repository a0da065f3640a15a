"""Nodes and a runtime that do what a test says: containers, as far as the follower sees them."""

import json
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

from launcher.job.plan import NodePlan
from launcher.on_node.rank import EVENT, FRAME, LINE


class FakeNode:
    """A node whose rank prints what the test makes it print, through a real pipe."""

    def __init__(self, plan: NodePlan, runtime: "FakeRuntime") -> None:
        self.plan = plan
        self.ranks: dict[int, int] = {}
        self.lost: str | None = None
        self.incomplete: str | None = None
        self.clock_s = 0.0
        self.code: int | None = None
        self.memory: str | None = None
        """The answer to whether memory ran out."""
        self.calls: list[str] = []
        """The signals that each rank got, by name, and `terminate` and `kill`, in order."""
        self.signals: list[tuple[int, int | None]] = []
        """What `signal_ranks` was called with."""
        self._runtime = runtime
        self._output, self._writing = os.pipe()

    def started(self) -> None:
        self._event(event="started", pid=7)

    def told(self, at: float, *, catches: bool = False) -> None:
        """Have the rank's parent report that its program was told to end."""
        self._event(event="told", signal="SIGTERM", at=at, state="S", catches=catches)

    def agent_says(self, text: str) -> None:
        os.write(self._writing, text.encode() + b"\n")

    def exited(self, code: int, killed_by: str | None = None, **more: Any) -> None:
        self._event(event="exited", exit_code=code, signal=killed_by, error_at=None, **more)

    def say(self, text: str) -> None:
        self._write(LINE, text)

    def end(self, code: int) -> None:
        if self.code is None:
            self.code = code
            os.close(self._writing)

    def _event(self, **fields: Any) -> None:
        self._write(EVENT, json.dumps(fields))

    def _write(self, kind: bytes, text: str) -> None:
        os.write(self._writing, FRAME + str(self.plan.first_rank).encode() + kind + text.encode() + b"\n")

    def fileno(self) -> int:
        return self._output

    def read(self) -> bytes:
        return os.read(self._output, 1 << 16)

    def poll(self) -> int | None:
        return self.code

    def joined(self) -> bool:
        return bool(self.ranks)

    def out_of_memory(self) -> str | None:
        return self.memory

    def signal_ranks(self, signum: int, only: int | None = None) -> None:
        self.signals.append((signum, only))
        self.calls += [signal.Signals(signum).name for rank in self.ranks if only in (None, rank)]
        if self._runtime.obeys and self.ranks and self.code is None:
            self.exited(128 + signum)
            self.end(0)

    def terminate(self) -> None:
        self.calls.append("terminate")
        if self._runtime.obeys:
            self.end(-signal.SIGTERM)

    def kill(self) -> None:
        self.calls.append("kill")
        self.end(-signal.SIGKILL)


class FakeRuntime:
    """Containers, as far as the follower sees them."""

    def __init__(self, *, survives: bool = True, obeys: bool = True) -> None:
        self.survives = survives
        self.obeys = obeys
        """Ranks and agents end when they are asked to."""
        self.nodes: list[FakeNode] = []
        self.away: list[str] = []
        """Nodes that are out of reach."""
        self.told: list[str] = []
        """What the user should know, until it was said."""
        self.removed: dict[str, str] = {}
        """By node, why nobody can tell how it ended."""
        self.done: list[str] = []
        """`release` and `sweep`, once they were called."""
        self.refuses: Exception | None = None
        """Raised instead of starting."""
        self.watched: Callable[[], None] = lambda: None
        """Called each time that the follower asks who is out of reach."""

    def start(self, nodes: Sequence[NodePlan], port: int) -> list[FakeNode]:
        if self.refuses:
            raise self.refuses
        self.nodes = [FakeNode(node, self) for node in nodes]
        for node in self.nodes:
            node.started()
        return self.nodes

    def watch(self) -> list[str]:
        self.watched()
        return list(self.away)

    def news(self) -> list[str]:
        told, self.told = self.told, []
        return told

    def unseen(self) -> dict[str, str]:
        return self.removed

    def release(self) -> None:
        self.done.append("release")

    def sweep(self) -> int:
        self.done.append("sweep")
        return 0
