"""The nodes' clocks and ours: when something happened, by our clock, and how sure that is."""

from launcher.follow.runtime import RunningNode

UNSURE_S = 0.25
"""How far another machine's clock may be from what was measured. Closer than that, nobody knows which came first."""


def unsure_s(node: RunningNode) -> float:
    """Return how unsure a time of the node is: not at all if it has our own clock."""
    return 0.0 if node.plan.container is None else UNSURE_S


def ours(at: float | None, node: RunningNode) -> float | None:
    """Return a time of the node's clock by ours."""
    return None if at is None else at - node.clock_s
