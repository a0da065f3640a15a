"""Which end explains the others, also where every rank that failed speaks only of another one. Pure.

The suspect is looked for among the ranks that have not complained themselves. What is known of them singles one out, or
one node, or nothing: then the cause is unknown, and the reason says what is known of each.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from launcher.follow.cause.failure import (
    TAIL_LINES,
    Failure,
    RankEnd,
    Weight,
    as_meant,
    describe,
    failure_of,
    proven,
    weight,
)
from launcher.follow.cause.hints import of_text
from launcher.follow.cause.peer_texts import accused, timed_out, while_joining
from launcher.follow.cause.tracebacks import raised

_SHOWN = 6
"""How many ranks a reason tells of."""
_LEAVING_S = 1.0
"""How long a process may still be there once it has let go of its peers: they notice before its end is seen."""


@dataclass(frozen=True, kw_only=True)
class Unended:
    """A rank that was not seen to end before everything was killed."""

    node: str
    rank: int
    started: bool = True
    heard: bool | None = None
    """Whether its parent has confirmed that it was told to end; None: not known."""
    state: str = ""
    """The kernel's letter for what its program was doing when it was told to end."""
    away: bool = False
    """Whether its node didn't answer any more."""
    unread: str | None = None
    """Why what was reported of it may have been lost on the way."""


class _Sign(IntEnum):
    """What singles a rank out, the strongest first."""

    AWAY = 0
    ACCUSED = 1
    FROZEN = 2
    DEAF = 3
    NOT_STARTED = 4
    LEFT = 5
    KILLED = 6
    RUNNING = 7


@dataclass(frozen=True, kw_only=True)
class _Quiet:
    """A rank that has not complained."""

    node: str
    rank: int
    sign: _Sign
    words: str


def root_cause(
    ends: Sequence[RankEnd], unended: Sequence[Unended] = (), addresses: Mapping[str, str] | None = None
) -> Failure | None:
    """Return what explains all the ends; None if every rank ended well, or as it was told to.

    Args:
        unended: the ranks that are missing in `ends`.
        addresses: of each node, by its name.
    """
    meant = [as_meant(end) for end in ends]
    failure = proven(meant)
    if failure is not None:
        return failure
    victims = [end for end in meant if weight(end) is Weight.EFFECT]
    if not victims:
        return None
    if len(meant) + len(unended) == 1:
        return failure_of(victims[0], describe(victims[0]))  # there is nobody else
    first = min(victims, key=lambda end: (not timed_out(_words(end)), end.trouble_at))
    quiet = _quiet(meant, victims, unended, addresses or {})
    return _suspected(first, victims, quiet)


def _quiet(
    ends: Sequence[RankEnd], victims: Sequence[RankEnd], unended: Sequence[Unended], addresses: Mapping[str, str]
) -> list[_Quiet]:
    """Return the ranks that haven't complained, each with the strongest sign against it."""
    ranks, nodes = _accused(victims, addresses)
    others = [end for end in ends if end not in victims and end.rank is not None]
    found = [(end.node, end.rank, *_sign_of_end(end, victims)) for end in others if end.rank is not None]
    found += [(each.node, each.rank, *_sign_of_unended(each)) for each in unended]
    if not found:  # all have complained; a rank that the others name has maybe only lost them
        found = [
            (end.node, end.rank, _Sign.RUNNING, "complained later")
            for end in victims
            if end.rank in ranks and not timed_out(_words(end))
        ]
    quiet = []
    for node, rank, sign, words in found:
        if rank in ranks or node in nodes:
            sign, words = min(sign, _Sign.ACCUSED), f"is the one that others missed, and {words}"
        quiet.append(_Quiet(node=node, rank=rank, sign=sign, words=words))
    return quiet


def _sign_of_end(end: RankEnd, victims: Sequence[RankEnd]) -> tuple[_Sign, str]:
    if end.exit_code != 0 or end.told:
        return _Sign.RUNNING, "was still running"
    since = end.ended_at - min(victim.trouble_at + max(end.unsure_s, victim.unsure_s) for victim in victims)
    if since <= _LEAVING_S:
        return _Sign.LEFT, "had ended with exit code 0"
    return _Sign.RUNNING, f"was still running, and ended with exit code 0 after {since:.0f} s"


def _sign_of_unended(rank: Unended) -> tuple[_Sign, str]:
    if rank.away:
        return _Sign.AWAY, "is on a node that doesn't answer"
    if rank.state in ("T", "t"):
        return _Sign.FROZEN, "was frozen (SIGSTOP, or a debugger)"
    if rank.unread:
        return _Sign.RUNNING, f"was not seen to end, and lines of its node's log are missing ({rank.unread})"
    if not rank.started:
        return _Sign.NOT_STARTED, "never started"
    if rank.heard is False:
        return _Sign.DEAF, "did not react to SIGTERM and had to be killed"
    return _Sign.KILLED, "was still running and did not end on SIGTERM: it had to be killed"


def _accused(victims: Iterable[RankEnd], addresses: Mapping[str, str]) -> tuple[set[int], set[str]]:
    """Return the ranks and nodes that the victims name. An address that several nodes have names none."""
    ranks: set[int] = set()
    nodes: set[str] = set()
    for victim in victims:
        named = accused(_words(victim))
        ranks |= named.ranks
        for address in named.addresses:
            known = [node for node, own in addresses.items() if address in (node, own)]
            nodes |= set(known) if len(known) == 1 and known != [victim.node] else set()
    return ranks, nodes


def _words(end: RankEnd) -> str:
    """Return what a victim says: its exception's message, or, of an aborted process, its last lines."""
    error = raised(end.lines)
    return "\n".join(end.lines[-200:]) if end.signal or error is None else error.first


def _suspected(first: RankEnd, victims: Sequence[RankEnd], quiet: Sequence[_Quiet]) -> Failure:
    complaint = f"{first.name}: {describe(first)}"
    sign = min((each.sign for each in quiet), default=None)
    named = [each for each in quiet if each.sign is sign]
    nodes = sorted({each.node for each in named})
    alone = len(nodes) == 1
    joining = ", while the ranks first met" if while_joining(_words(first)) else ""
    if alone:
        told = _list(f"rank {each.rank} on {each.node} {each.words}" for each in named)
        rest = _list(f"rank {each.rank} on {each.node} {each.words}" for each in quiet if each not in named)
        reason = f"suspect: {told}{joining}; {complaint}{f'; {rest}' if rest else ''}"
    else:
        known = _list(f"rank {each.rank} on {each.node} {each.words}" for each in quiet)
        why = "each rank speaks only of others" if not quiet else f"nothing singles one rank out: {known}"
        reason = f"unknown{joining}: {why}; first {complaint}"
    return Failure(
        node=nodes[0] if alone else None,
        rank=named[0].rank if alone and len(named) == 1 else None,
        exit_code=None,
        signal=None,
        reason=reason,
        log_tail=first.lines[-TAIL_LINES:],
        hint=of_text(describe(first)) or _advice(victims),
        suspect=alone,
    )


def _advice(victims: Sequence[RankEnd]) -> str:
    if any(timed_out(_words(end)) for end in victims):
        return "the ranks waited for each other: look for work that only one of them does, and see each node's log"
    return "the ranks lost each other: see each node's log, and the network between the nodes"


def _list(words: Iterable[str]) -> str:
    shown = list(words)
    more = f", and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(shown[:_SHOWN]) + more
