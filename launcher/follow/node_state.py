"""A node while it is followed: what it said, and how its ranks and its agent ended."""

import threading
from collections import deque
from dataclasses import dataclass, field, replace
from typing import IO

from launcher.follow.failure import RankEnd
from launcher.follow.frames import Line, StreamReader
from launcher.follow.runtime import RunningNode

KEPT_LINES = 1000
"""Of each rank: a deep traceback must fit, or its first line, and with it the cause, would be lost."""


@dataclass(kw_only=True)
class Followed:
    """One node's state."""

    node: RunningNode
    log: IO[bytes]
    reader: StreamReader = field(default_factory=StreamReader)
    own_lines: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    rank_lines: dict[int, deque[str]] = field(default_factory=dict)
    ends: dict[int, RankEnd] = field(default_factory=dict)
    open: bool = True
    agent_end: RankEnd | None = None
    memory: threading.Thread | None = None
    """Asks the node whether something was killed there for want of memory."""
    out_of_memory: str | None = None
    """Its answer."""
    log_trouble: str | None = None
    """Why the log is not complete; training goes on without it."""

    @property
    def going(self) -> bool:
        """Whether more is to come of it."""
        return self.node.lost is None and (self.open or self.node.poll() is None)

    def keep(self, line: Line) -> None:
        """Put a line into the log, and remember the last ones of each rank and of the agent."""
        lines = self.own_lines
        if line.rank is not None:
            lines = self.rank_lines.setdefault(line.rank, deque(maxlen=KEPT_LINES))
        lines.append(line.text.decode(errors="replace"))
        who = b"agent" if line.rank is None else b"%d" % line.rank
        try:
            self.log.write(b"[" + who + b"] " + line.text + b"\n")
            self.log.flush()
        except OSError as error:
            if self.log_trouble is None:
                self.log_trouble = error.strerror or str(error)


def ends(each: Followed) -> list[RankEnd]:
    """How a node's ranks ended; its agent counts only where they don't explain its own end."""
    found = _explained(each)
    if each.out_of_memory is None:
        return found
    return [replace(end, out_of_memory=each.out_of_memory) if end.signal == "SIGKILL" else end for end in found]


def _explained(each: Followed) -> list[RankEnd]:
    agent, ranks = each.agent_end, list(each.ends.values())
    if len(ranks) == each.node.plan.ranks and all(end.exit_code == 0 for end in ranks):
        return ranks  # whatever became of the agent afterwards
    if agent is None or agent.exit_code == 0 or any(end.exit_code != 0 for end in ranks):
        return ranks
    silent = [rank for rank in each.node.ranks if rank not in each.ends]
    if agent.signal is None and not agent.lost and silent:
        # Only SIGKILL ends a rank's parent without a word.
        lines = tuple(each.rank_lines.get(silent[0], ()))
        return [*ranks, replace(agent, rank=silent[0], exit_code=137, signal="SIGKILL", lines=lines)]
    return [*ranks, agent]
