"""A node while its job is followed: what it printed, and how its ranks and its agent ended."""

import os
import threading
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from launcher.follow.failure import RankEnd
from launcher.follow.frames import Line, StreamReader
from launcher.follow.runtime import RunningNode

KEPT_LINES = 1000
"""Of each rank: a deep traceback must fit, or its first line, and with it the cause, would be lost."""


@dataclass(kw_only=True)
class NodeState:
    """One node's state."""

    node: RunningNode
    log: IO[bytes]
    reader: StreamReader = field(default_factory=StreamReader)
    own_lines: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    """The last lines that the node's agent printed itself."""
    rank_lines: dict[int, deque[str]] = field(default_factory=dict)
    """The last lines of each rank."""
    ends: dict[int, RankEnd] = field(default_factory=dict)
    """How each rank ended that has ended."""
    open: bool = True
    """Whether more output may come."""
    agent_end: RankEnd | None = None
    """How the agent ended, or that the node is lost."""
    refused: bool = False
    """Whether a rank's parent found that its program must not start."""
    memory_query: threading.Thread | None = None
    """Asks the node whether something was killed there because memory had run out."""
    out_of_memory: str | None = None
    """The node's answer."""
    log_trouble: str | None = None
    """Why the log is not complete; training goes on without it."""
    log_trouble_noted: bool = False
    """Whether the user knows of it."""

    @classmethod
    def logging_to(cls, path: Path, node: RunningNode) -> "NodeState":
        """Return the state of a node whose log is `path`; a disk that refuses the log is no reason not to follow."""
        try:
            return cls(node=node, log=path.open("wb"))
        except OSError as error:
            return cls(node=node, log=open(os.devnull, "wb"), log_trouble=error.strerror)  # noqa: PTH123

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.plan.name

    @property
    def going(self) -> bool:
        """Whether more is to come from it."""
        return self.node.lost is None and (self.open or self.node.poll() is None)

    def keep(self, line: Line) -> None:
        """Put a line into the log, and remember the last lines of each rank and of the agent."""
        lines = self.own_lines
        if line.rank is not None:
            lines = self.rank_lines.setdefault(line.rank, deque(maxlen=KEPT_LINES))
        lines.append(line.text.decode(errors="replace"))
        author = b"agent" if line.rank is None else b"%d" % line.rank
        try:
            self.log.write(b"[" + author + b"] " + line.text + b"\n")
            self.log.flush()
        except OSError as error:
            if self.log_trouble is None:
                self.log_trouble = error.strerror or str(error)


def ends(state: NodeState) -> list[RankEnd]:
    """Return how a node's ranks ended. The agent's end counts only where the ranks' ends don't explain it."""
    explained = _explained(state)
    if state.out_of_memory is None:
        return explained
    return [replace(end, out_of_memory=state.out_of_memory) if end.signal == "SIGKILL" else end for end in explained]


def _explained(state: NodeState) -> list[RankEnd]:
    agent, ranks = state.agent_end, list(state.ends.values())
    if len(ranks) == state.node.plan.ranks and all(end.exit_code == 0 for end in ranks):
        return ranks  # whatever became of the agent afterwards
    if agent is None or agent.exit_code == 0 or any(end.exit_code != 0 for end in ranks):
        return ranks
    silent = [rank for rank in state.node.ranks if rank not in state.ends]
    if agent.signal is None and not agent.lost and silent:
        # Only SIGKILL ends a rank's parent without a word.
        lines = tuple(state.rank_lines.get(silent[0], ()))
        return [*ranks, replace(agent, rank=silent[0], exit_code=137, signal="SIGKILL", lines=lines)]
    return [*ranks, agent]
