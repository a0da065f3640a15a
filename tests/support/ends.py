"""How ranks ended, and what they printed last."""

from typing import Any

from launcher.follow.cause.failure import RankEnd

RAISED = ("hello", "[rank1]: Traceback (most recent call last):", "[rank1]:   File …", "[rank1]: ValueError: boom")


def end(rank: int | None = 0, **fields: Any) -> RankEnd:
    """Return the end of a rank that failed, unless `fields` says otherwise."""
    return RankEnd(**{"node": f"node{rank}", "rank": rank, "exit_code": 1, "ended_at": 100.0, **fields})
