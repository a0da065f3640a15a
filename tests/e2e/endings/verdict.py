"""What the launcher said of a planted ending, held against what is true. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tests.e2e.endings.ending import Expected

ENOUGH = 0.95
"""How many of the endings must be named rightly."""


class Name(Enum):
    """Was the right one named?"""

    RIGHT = "right"
    SUSPECT = "suspect"
    """The right one, but only as a suspect, though it could be known."""
    UNKNOWN = "unknown"
    """Nobody, or the right node without its rank."""
    WRONG = "wrong"
    """An innocent one, be it as a suspect; or a wrong state or exit code."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What is to be said of what was said."""

    name: Name
    told: str
    """State, exit code, and who was named."""
    complaints: tuple[str, ...] = ()
    """What is not as expected; a suspect instead of a culprit is not among it."""


def verdict(expected: Expected, summary: Mapping[str, Any], said: str) -> Verdict:
    """Judge a job's summary, and the lines that the launcher itself said."""
    complaints = []
    state, code = summary["state"], summary["exit_code"]
    if (state, code) not in _allowed(expected, summary["failure"]):
        complaints.append(f"{state}, exit {code}, in place of {expected.state}, exit {expected.code}")
    name = _name(expected, summary["failure"])
    if name is Name.WRONG:
        complaints.append(f"named {_who(summary['failure'])}, in place of {expected.culprits or 'nobody'}")
    wrong = bool(complaints)
    if name is Name.RIGHT and summary["failure"]:
        complaints += _wrong_words(expected, summary["failure"])
    if not re.search(expected.said, said):
        complaints.append(f"no line of the launcher's own says {expected.said!r}")
    told = f"{state}, exit {code}: {_who(summary['failure'])}"
    return Verdict(name=Name.WRONG if wrong else name, told=told, complaints=tuple(complaints))


def line(ending: str, found: Verdict) -> str:
    """Return an ending's line in the score."""
    return f"{ending:<50} {found.name.value:<8} {found.told}"


def score(names: Iterable[Name]) -> str:
    """Return how many were named rightly, suspected, unknown and wrong."""
    found = list(names)
    counts = ", ".join(f"{found.count(each)} {each.value}" for each in Name)
    return f"{len(found)} planted endings: {counts}"


def good_enough(names: Iterable[Name]) -> bool:
    """Return whether none was wrong, and enough were right."""
    found = list(names)
    return Name.WRONG not in found and found.count(Name.RIGHT) >= ENOUGH * len(found)


def _allowed(expected: Expected, failure: Mapping[str, Any] | None) -> set[tuple[str, int]]:
    allowed = {(expected.state, expected.code)}
    if failure and failure["rank"] is None:
        allowed.add((expected.state, 4))  # a failure of no rank in particular is the cluster's
    return allowed


def _name(expected: Expected, failure: Mapping[str, Any] | None) -> Name:
    if (failure is None) is (expected.state == "failed"):
        return Name.WRONG
    if failure is None:
        return Name.RIGHT
    node, rank = failure["node"], failure["rank"]
    if node is None:
        return Name.UNKNOWN if expected.culprits else Name.RIGHT
    if (node, rank) in expected.culprits:
        return Name.SUSPECT if failure.get("suspect") and expected.provable else Name.RIGHT
    right_node = node in {each for each, _ in expected.culprits}
    return Name.UNKNOWN if right_node and rank is None else Name.WRONG


def _wrong_words(expected: Expected, failure: Mapping[str, Any]) -> list[str]:
    reason = failure["reason"]
    missing = [] if failure.get("suspect") else [each for each in expected.reason if each not in reason]
    return [
        *(f"the reason lacks {each!r}: {reason}" for each in missing),
        *(f"the reason has {each!r}: {reason}" for each in expected.never if each in reason),
    ]


def _who(failure: Mapping[str, Any] | None) -> str:
    if failure is None:
        return "nobody"
    rank = "" if failure["rank"] is None else f" rank {failure['rank']}"
    suspect = " as a suspect" if failure.get("suspect") else ""
    return f"{failure['node']}{rank}{suspect} ({failure['reason']})"
