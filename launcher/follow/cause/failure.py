"""Which one of the ranks' ends is the cause of a failure: node, rank, reason, last lines, hint. Pure.

What an exception says is read by `tracebacks`, whether it speaks of another rank by `peer_texts`. Where every rank only
speaks of others, `suspects` looks for the one that they mean.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from launcher.follow.cause import hints
from launcher.follow.cause.peer_texts import Says, says_in_chain, says_of_abort
from launcher.follow.cause.tracebacks import before_late_abort, has_late_abort, last_words, raised, thrown

TAIL_LINES = 20
_LATE_ABORT_HINT = (
    "maybe one of Gloo's threads, while Python ended: see docs/jobs.md on scripts that abort at their end"
)
_LOST_HINT = "is it switched on, and is its network up? The work up to the last checkpoint is on the head"
_MEMORY_HINT = "a smaller batch, fewer data workers or a node with more memory"


@dataclass(frozen=True, kw_only=True)
class RankEnd:
    """How one rank ended, or that it hadn't when everything was stopped. All times are unix time by our clock."""

    node: str
    rank: int | None
    """None: the node's agent itself, not one of its ranks."""
    exit_code: int
    signal: str | None = None
    ended_at: float
    error_at: float | None = None
    """When it printed the first line of its last error."""
    told_at: float | None = None
    """When it was handed a signal that asked it to end, by us, by torchrun or with its node."""
    stopped_by_us: bool = False
    """Whether the rank ended after the launcher had begun to stop everything."""
    unsure_s: float = 0.0
    """How far the times may be off, compared with another node's; infinite if only the end's discovery has a time."""
    lines: tuple[str, ...] = ()
    """The last lines that it printed."""
    out_of_memory: str | None = None
    """Where memory ran out, if that is why the rank was killed: `node2 (limit 512 MiB)`."""
    lost: str | None = None
    """Why its node counts as lost. How the rank ended is unknown then."""
    unread: str | None = None
    """Of an agent: why what its ranks reported may have been lost on the way. Their ends are unknown then."""

    @property
    def told(self) -> bool:
        """Whether it ended once it was told to."""
        return self.stopped_by_us or self.told_at is not None

    @property
    def trouble_at(self) -> float:
        """When its trouble began, as far as is known."""
        return self.error_at or self.ended_at

    @property
    def name(self) -> str:
        """Who it is, for people."""
        return self.node if self.rank is None else f"rank {self.rank} on {self.node}"


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The cause, as `summary.json` has it."""

    node: str | None
    """None: it is not known where the failure began."""
    rank: int | None
    exit_code: int | None
    signal: str | None
    reason: str
    log_tail: tuple[str, ...]
    hint: str | None
    suspect: bool = False
    """Whether the node and rank are only suspected."""


class Weight(IntEnum):
    """How much an end explains, the most first."""

    CAUSE = 0
    """The rank failed by itself."""
    MAYBE = 1
    """It failed by itself, or because another was gone: its words can mean both."""
    CAUSE_TOLD = 2
    """An exception had ended it when it was told to end."""
    EFFECT = 3
    """It waited for another rank in vain, or lost it."""
    NOTHING = 4
    """It ended well, or as it was told to."""


def weight(end: RankEnd) -> Weight:
    """Return how much an end explains.

    The traceback of a rank that was told to end may be an old one, of an exception that it had handled.
    """
    if end.exit_code == 0:
        return Weight.NOTHING
    if not end.told:
        whose = _whose(end)
        return {Says.OWN: Weight.CAUSE, Says.MAYBE_PEER: Weight.MAYBE, Says.PEER: Weight.EFFECT}[whose]
    error = raised(end.lines)
    before = end.error_at is not None and (end.told_at is None or end.error_at < end.told_at)
    if not before or error is None:
        return Weight.NOTHING
    if says_in_chain(error.first, error.message) is Says.PEER:
        return Weight.EFFECT
    if error.marked:
        return Weight.CAUSE
    return Weight.CAUSE_TOLD if error.uncaught else Weight.NOTHING


def _whose(end: RankEnd) -> Says:
    """Return whose fault the end of a rank says that it is, which nobody had told to end."""
    if end.unread:
        return Says.MAYBE_PEER
    if end.signal == "SIGABRT":
        return says_of_abort(end.lines, thrown(end.lines))
    if end.signal or end.lost:
        return Says.OWN
    error = raised(end.lines)
    if error is None or not (end.exit_code == 1 or error.uncaught):
        return Says.OWN  # with another code the exception was caught, unless nothing was printed after it
    return says_in_chain(error.first, error.message)


def as_meant(end: RankEnd) -> RankEnd:
    """Return the end without an abort that followed an error of the rank's own, because that error is the cause."""
    before = before_late_abort(end.lines) if end.signal == "SIGABRT" else None
    return end if before is None else replace(end, exit_code=1, signal=None, lines=before)


def proven(ends: Sequence[RankEnd]) -> Failure | None:
    """Return the end that explains the others; None if there is none.

    Ranks that failed by themselves come first. Among those, the first to show trouble is the cause: a rank prints its
    traceback before its sockets close and its peers fail. Between two nodes that is only known as well as their clocks
    are. Then the cause is the stronger one, or a suspect.
    """
    weighed = [(weight(end), end) for end in ends]
    best = min((each for each, _ in weighed), default=Weight.NOTHING)
    if best >= Weight.EFFECT:
        return None
    bad = [end for each, end in weighed if each is best]
    first = min(bad, key=lambda end: (_follows_in_silence(end, bad), end.trouble_at))
    rivals = [end for end in bad if _at_the_same_time(first, end) and not _follows_in_silence(end, bad)]
    end = min([first, *rivals], key=lambda each: (not _by_itself(each), each.trouble_at))
    reason = describe(end)
    others = [each for each in rivals if each is not end and _by_itself(each) == _by_itself(end)]
    others = [each for each in others if describe(each) != reason]
    complaints = {describe(each) for each_weight, each in weighed if each_weight < Weight.NOTHING} - {reason}
    if best is Weight.MAYBE and complaints:
        return replace(failure_of(end, reason), reason=f"suspect: {reason}", suspect=True)
    if not others:
        return failure_of(end, reason)
    also = "; ".join(f"{each.name} failed at the same time: {describe(each)}" for each in others[:3])
    suspected = replace(failure_of(end, reason), reason=f"suspect: {reason}; {also}", suspect=True)
    if all(each.unsure_s < math.inf for each in (end, *others)):
        return suspected
    return replace(
        suspected, node=None, rank=None, suspect=False, reason=f"unknown which came first: {end.name}: {reason}; {also}"
    )


def _follows_in_silence(end: RankEnd, others: Sequence[RankEnd]) -> bool:
    """Return whether another one, with the same exit code, says why: ranks agree on an end, and one of them speaks."""
    silent = end.signal is None and not end.lost and not last_words(end.lines)
    return silent and any(other.exit_code == end.exit_code and last_words(other.lines) for other in others)


def _at_the_same_time(first: RankEnd, end: RankEnd) -> bool:
    """Return whether nobody knows which of the two came first."""
    if end is first or (end.node == first.node and math.inf not in (end.unsure_s, first.unsure_s)):
        return False
    return abs(end.trouble_at - first.trouble_at) <= max(first.unsure_s, end.unsure_s) > 0


def _by_itself(end: RankEnd) -> bool:
    """Return whether no other rank can have brought the end about: something has killed it, or its node is lost."""
    return bool(end.signal not in (None, "SIGABRT") or end.out_of_memory or end.lost)


def failure_of(end: RankEnd, reason: str) -> Failure:
    """Return the failure that an end is the cause of."""
    return Failure(
        node=end.node,
        rank=end.rank,
        exit_code=None if end.lost else end.exit_code,
        signal=end.signal,
        reason=reason,
        log_tail=end.lines[-TAIL_LINES:],
        hint=_hint(end, reason),
    )


def _own_signal(end: RankEnd) -> str | None:
    """Return the signal that ended the rank; None if it was told to end while it failed of an error of its own."""
    return None if end.told else end.signal


def describe(end: RankEnd) -> str:
    """Return the cause in one line: the exception, the signal, or the exit code with the last line printed."""
    if end.lost:
        return f"the node is lost: {end.lost}"
    if end.out_of_memory:
        return f"out of memory on {end.out_of_memory}"
    if end.unread:
        missing = f"lines of the node's log are missing ({end.unread})"
        return f"exited with code {end.exit_code}; what failed there is unknown: {missing}"
    signal = _own_signal(end)
    if signal:
        said = thrown(end.lines) if signal == "SIGABRT" else None
        return f"killed by {signal}" + (f": {said}" if said else "")
    error = raised(end.lines)
    if error and (end.exit_code == 1 or end.told):
        return error.text  # an uncaught exception is exit code 1; with another code it was caught
    last = last_words(end.lines)
    code = f"exited with code {end.exit_code}"
    return f"{code}: {last}" if last else code


def _hint(end: RankEnd, reason: str) -> str | None:
    signal = _own_signal(end)
    if end.lost:
        return _LOST_HINT
    if end.out_of_memory:
        return _MEMORY_HINT
    if signal == "SIGABRT" and has_late_abort(end.lines):
        return _LATE_ABORT_HINT
    said = hints.of_text(reason) or hints.of_text("\n".join(end.lines[-TAIL_LINES:]))
    if signal in (None, "SIGABRT", "SIGBUS") and said:
        return said
    return hints.of_signal(signal) if signal else said
