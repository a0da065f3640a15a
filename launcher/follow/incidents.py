"""What befell a job's nodes while it ran: for `summary.json`, and for the time line of the report."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from launcher.follow.node_state import ToldToGo

TOLD_TO_GO = "told to go"


@dataclass(frozen=True, kw_only=True)
class Incident:
    """One of them, as `summary.json` has it."""

    at: float
    """Unix time by our clock."""
    node: str | None
    rank: int | None
    kind: str
    action: str
    """What was done about it."""
    lost_s: float | None
    """How much training time it cost, if that is known."""

    @classmethod
    def told_to_go(cls, told: ToldToGo) -> "Incident":
        """Return the incident of a node that was told to end."""
        return cls(at=round(told.at, 3), node=told.node, rank=None, kind=TOLD_TO_GO, action="stopped", lost_s=None)


def as_records(incidents: Sequence[Incident], *, clock_s: float) -> list[dict[str, Any]]:
    """Return the incidents as records of `metrics.jsonl`.

    Args:
        clock_s: how many seconds the clock of the machine that wrote the metrics is ahead of ours.
    """
    return [
        {
            "kind": "event",
            "event": "incident",
            "at": round(each.at + clock_s, 3),
            "node": each.node,
            "message": f"{each.node} was {each.kind}",
            "action": each.action,
        }
        for each in incidents
    ]
