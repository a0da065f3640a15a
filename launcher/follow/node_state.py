"""A node while its job is followed: what it printed, and how its ranks and its agent ended."""

import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from launcher.follow.cause import torchrun_words
from launcher.follow.cause.failure import RankEnd
from launcher.follow.cause.suspects import Unended
from launcher.follow.cause.tracebacks import raised
from launcher.follow.clocks import unsure_s
from launcher.follow.frames import Lines, StreamReader
from launcher.follow.limited_log import LimitedLog
from launcher.follow.node_log import entry
from launcher.follow.runtime import RunningNode

KEPT_LINES = 1000
"""Of each rank: a deep traceback must fit, or its first line, and with it the cause, would be lost."""
_KEPT_BYTES = 10_000
"""Of each of these lines: a rank may print lines of a megabyte."""
LIVE_S = 5.0
"""What reaches us later than this comes from a log."""
_LAG_S = 0.25
"""How long what a rank prints may take to reach us."""


class Tail:
    """The last lines of an author. They are decoded when somebody asks: most are never read."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque(maxlen=KEPT_LINES)

    def extend(self, lines: Sequence[bytes]) -> None:
        """Take in the next lines."""
        self._lines.extend(line[:_KEPT_BYTES] for line in lines[-KEPT_LINES:])

    def __iter__(self) -> Iterator[str]:
        return (line.decode(errors="replace") for line in self._lines)


@dataclass(frozen=True, kw_only=True)
class ToldRank:
    """A rank's program was told to end."""

    at: float
    """Unix time by our clock."""
    state: str
    """The kernel's letter for what it was doing then."""
    catches: bool = False
    """Whether it has a handler for that signal: it may be about to save something."""


@dataclass(frozen=True, kw_only=True)
class ToldToGo:
    """A node was told to end from outside: its container was stopped, its machine shuts down."""

    node: str
    signal: str
    at: float
    """Unix time by our clock."""
    unsure_s: float = math.inf
    """How far it may be off. If only the agent says so, in a log that may be hours old, the time is anybody's guess."""


@dataclass(kw_only=True)
class NodeState:
    """One node's state."""

    node: RunningNode
    log: IO[bytes] | LimitedLog
    reader: StreamReader = field(default_factory=StreamReader)
    own_lines: Tail = field(default_factory=Tail)
    """The last lines that the node's agent printed itself."""
    rank_lines: dict[int, Tail] = field(default_factory=dict)
    """The last lines of each rank."""
    ends: dict[int, RankEnd] = field(default_factory=dict)
    """How each rank ended that has ended."""
    told_ranks: dict[int, ToldRank] = field(default_factory=dict)
    """The ranks that were told to end."""
    told_to_go: ToldToGo | None = None
    """That the node's agent was told to end, and not by us."""
    traceback_at: dict[int, float] = field(default_factory=dict)
    """When the last traceback of each rank reached us."""
    live: bool = False
    """Whether we have heard of its ranks from their start, as it happened."""
    says_told: bool = False
    """Whether its ranks' parents report when they are told to end; older ones don't."""
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
            return cls(node=node, log=LimitedLog(path))
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

    def keep(self, lines: Lines) -> None:
        """Put lines into the log, and remember the last ones of each rank and of the agent."""
        tail = self.own_lines if lines.rank is None else self.rank_lines.setdefault(lines.rank, Tail())
        tail.extend(lines.texts)
        if lines.rank is not None and any(b"Traceback (most recent call last)" in text for text in lines.texts):
            self.traceback_at[lines.rank] = time.time()
        try:
            self.log.write(entry(lines))
            self.log.flush()
        except OSError as error:
            if self.log_trouble is None:
                self.log_trouble = error.strerror or str(error)


def missing_of(log: IO[bytes] | LimitedLog) -> str | None:
    """Return what a log lacks because it is limited, in words; None: nothing."""
    if not isinstance(log, LimitedLog) or not log.missing_lines:
        return None
    return (
        f"{log.name} holds the first and the last part of the {log.total_bytes / 1e6:,.0f} MB that were printed; "
        f"{log.missing_lines:,} lines in between are not kept"
    )


def ends(state: NodeState) -> list[RankEnd]:
    """Return how a node's ranks ended. The agent's end counts only where the ranks' ends don't explain it."""
    explained = _explained(state)
    if state.out_of_memory is None:
        return explained
    return [replace(end, out_of_memory=state.out_of_memory) if end.signal == "SIGKILL" else end for end in explained]


def told_to_go(state: NodeState) -> ToldToGo | None:
    """Return that the node was told to go, and when, as its ranks' parents report it."""
    told = state.told_to_go
    if told is None or not state.told_ranks:
        return told
    return replace(told, at=min(each.at for each in state.told_ranks.values()), unsure_s=unsure_s(state.node))


def unended(state: NodeState, *, away: bool) -> list[Unended]:
    """Return the node's ranks of which no end was seen.

    Args:
        away: the node doesn't answer any more.
    """
    plan, seen = state.node.plan, {end.rank for end in ends(state)}
    return [
        Unended(
            node=state.name,
            rank=rank,
            started=rank in state.node.ranks or rank in state.rank_lines,
            heard=rank in state.told_ranks if state.says_told else None,
            state=state.told_ranks[rank].state if rank in state.told_ranks else "",
            away=away,
            unread=state.node.incomplete,
        )
        for rank in range(plan.first_rank, plan.first_rank + plan.ranks)
        if rank not in seen
    ]


def _explained(state: NodeState) -> list[RankEnd]:
    agent = _agent_end(state)
    ranks = [*(_judged(state, end) for end in state.ends.values()), *_broken(state)]
    if len(ranks) == state.node.plan.ranks and all(end.exit_code == 0 for end in ranks):
        return ranks  # whatever became of the agent afterwards
    silent = [rank for rank in state.node.ranks if rank not in {end.rank for end in ranks}]
    if seen := _seen_to_die(state, silent):
        return [*ranks, seen]
    if agent is None or agent.exit_code == 0 or any(end.exit_code != 0 and not end.told for end in ranks):
        return ranks
    closed = torchrun_words.closed(state.own_lines)
    killed = [rank for rank in silent if state.node.ranks[rank] not in closed]  # torchrun kills what it can't close
    if killed and agent.signal is None and not agent.lost and not agent.unread:
        return ranks if agent.told or state.told_to_go else [*ranks, _killed(state, killed, agent)]
    if any(end.exit_code != 0 and end.stopped_by_us for end in ranks):
        return ranks
    return [*ranks, replace(agent, told_at=state.told_to_go.at) if state.told_to_go else agent]


def _agent_end(state: NodeState) -> RankEnd | None:
    """Return how the agent ended, and whether what explains it may be among the lines that never reached us."""
    agent = state.agent_end
    if agent is None or agent.signal is not None or agent.lost:
        return agent
    return replace(agent, unread=state.node.incomplete)


def _broken(state: NodeState) -> list[RankEnd]:
    """Return the ranks that an exception had ended, and that never finished ending: somebody had to kill them."""
    return [
        RankEnd(
            node=state.name,
            rank=rank,
            exit_code=1,
            ended_at=at,
            error_at=at,
            told_at=at + 1e-3,
            unsure_s=max(unsure_s(state.node), _LAG_S) if state.live else math.inf,
            lines=tuple(state.rank_lines[rank]),
        )
        for rank, at in state.traceback_at.items()
        if rank not in state.ends and (error := raised(tuple(state.rank_lines[rank]))) and error.marked
    ]


def _judged(state: NodeState, end: RankEnd) -> RankEnd:
    """Return the end of a rank, with `told_at` only if it was told to end by us, by torchrun, or with its node.

    SIGTERM from anybody else is what the rank has died of, unless what torchrun did it for may not have reached us.
    """
    if end.stopped_by_us or (end.told_at is None and state.says_told):
        return end
    if state.node.ranks.get(end.rank or 0) in torchrun_words.closed(state.own_lines):
        return replace(end, told_at=end.told_at or end.ended_at)  # an older parent doesn't say that it was told
    if end.told_at is None or state.told_to_go or state.node.incomplete:
        return end
    earlier = any(
        other.exit_code != 0 and other.ended_at <= end.told_at for other in state.ends.values() if other is not end
    )
    return end if earlier else replace(end, told_at=None)


def _seen_to_die(state: NodeState, silent: list[int]) -> RankEnd | None:
    """Return the end of a rank that its parent didn't report, and the agent did: somebody has killed the parent."""
    codes = torchrun_words.failed(state.own_lines)
    for rank in silent:
        code = codes.get(state.node.ranks[rank])
        if code is not None:
            ended_at = state.agent_end.ended_at if state.agent_end else time.time()
            return _unreported(state, rank, code, ended_at)
    return None


def _killed(state: NodeState, silent: list[int], agent: RankEnd) -> RankEnd:
    """Return the end of a rank that nobody reported, for which the agent has ended: only SIGKILL is that silent."""
    return _unreported(state, silent[0] if len(silent) == 1 else None, -signal.SIGKILL, agent.ended_at)


def _unreported(state: NodeState, rank: int | None, code: int, ended_at: float) -> RankEnd:
    """Return an end of which only the discovery has a time.

    Args:
        code: negative: the signal.
    """
    return RankEnd(
        node=state.name,
        rank=rank,
        exit_code=128 - code if code < 0 else code,
        signal=signal.Signals(-code).name if -code in set(signal.Signals) else None,
        ended_at=ended_at,
        unsure_s=math.inf,
        lines=tuple(state.rank_lines.get(rank, ())) if rank is not None else (),
    )
