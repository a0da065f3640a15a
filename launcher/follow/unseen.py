"""What nobody saw of a job's end: which nodes are not known to have ended well, and why. Pure."""

from collections.abc import Mapping, Sequence

from launcher.follow.node_state import NodeState
from launcher.job.plan import NodePlan


def unseen(planned: Sequence[NodePlan], followed: Sequence[NodeState], away: Mapping[str, str]) -> str:
    """Return in words which nodes are not known to have ended well, and what the others did; empty if all are.

    Args:
        away: by node, why its runtime can't tell how it ended.
    """
    states = {state.name: state for state in followed}
    causes: dict[str, list[str]] = {}
    well = []
    for node in planned:
        cause = _cause(states.get(node.name), away.get(node.name))
        if cause is None:
            well.append(node.name)
        else:
            causes.setdefault(cause, []).append(node.name)
    if not causes:
        return ""
    known = [f"{', '.join(well)} ended with 0"] if well else []
    return "; ".join([*(f"{', '.join(names)}: {cause}" for cause, names in causes.items()), *known])


def all_well(state: NodeState) -> bool:
    """Return whether each of a node's ranks is known to have ended with 0."""
    ranks = state.ends.values()
    return len(ranks) == state.node.plan.ranks and all(end.exit_code == 0 for end in ranks)


def _cause(state: NodeState | None, away: str | None) -> str | None:
    """Why a node is not known to have ended well; None if its ranks say that it did, or its agent."""
    if state and all_well(state):
        return None
    if away or state is None or state.agent_end is None:
        return away or "not seen to end"
    return None if state.agent_end.exit_code == 0 else f"ended with {state.agent_end.exit_code}"
