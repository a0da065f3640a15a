"""Whether a node has run out of memory: it is asked when a rank or its agent was killed, and may be slow to answer."""

import threading
import time
from collections.abc import Callable, Sequence

from launcher.follow.cause.failure import RankEnd
from launcher.follow.node_state import NodeState

_ANSWER_S = 8.0
"""How long to wait, once everything has stopped, for nodes that were asked whether they ran out of memory."""
_TICK_S = 0.1


def ask_if_killed(state: NodeState, end: RankEnd) -> None:
    """Ask the node about its memory if something other than us has killed the rank or agent that ended.

    A thread asks: the node may be too busy to answer soon.
    """
    if end.signal != "SIGKILL" or end.stopped_by_us or state.memory_query is not None:
        return

    def ask() -> None:
        state.out_of_memory = state.node.out_of_memory()

    state.memory_query = threading.Thread(target=ask, daemon=True)
    state.memory_query.start()


def await_answers(nodes: Sequence[NodeState], *, interrupted: Callable[[], bool]) -> None:
    """Leave nodes that were asked the time to answer.

    Args:
        interrupted: whether the user has asked to end the wait.
    """
    until = time.monotonic() + _ANSWER_S
    for each in nodes:
        while each.memory_query is not None and each.memory_query.is_alive() and time.monotonic() < until:
            each.memory_query.join(_TICK_S)
            if interrupted():
                until = 0.0
