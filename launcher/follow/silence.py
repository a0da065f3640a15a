"""Says once, of a script that prints nothing for long after its start, what that may be."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from launcher.follow.node_state import NodeState

_SILENT_S = 20.0


@dataclass(frozen=True, kw_only=True)
class Heard:
    """What was seen of a job's ranks so far."""

    all_started: bool
    """Whether all have reported their start as it happened."""
    anything: bool
    """Whether one has printed a line or reported a step, or has ended."""


def looks_stuck(heard: Heard, *, started_s: float) -> bool:
    """Return whether all ranks have started and not one was heard of since.

    Args:
        started_s: how long ago the last of them had started.
    """
    return heard.all_started and not heard.anything and started_s >= _SILENT_S


class Silence:
    """Watches a job for what `looks_stuck` says, and tells the user of it, at most once."""

    def __init__(self, nodes: Sequence[NodeState], note: Callable[[str], None], *, applies: bool) -> None:
        """Args:
        nodes: the list that the follower fills once the nodes have started.
        applies: the program is the user's, and was not started as one that starts its own processes.
        """
        self._nodes = nodes
        self._note = note
        self._done = not applies
        self._since: float | None = None

    def look(self, now: float, *, reported: bool) -> None:
        """Tell the user, if it is time to.

        Args:
            now: by a clock that only goes forward, in seconds.
            reported: whether the script has reported progress in a file.
        """
        if self._done:
            return
        heard = self._heard(reported)
        if heard.all_started and self._since is None:
            self._since = now
        if self._since is not None and looks_stuck(heard, started_s=now - self._since):
            self._note(
                f"no output for {_SILENT_S:.0f} s: it may be loading; if the script starts its own processes, RANKS=1 "
                "or LAUNCH_STYLE=spawn starts it once per node"
            )
        elif not heard.anything:
            return
        self._done = True

    def _heard(self, reported: bool) -> Heard:
        return Heard(
            all_started=all(each.live and len(each.node.ranks) == each.node.plan.ranks for each in self._nodes),
            anything=reported or any(each.rank_lines or each.ends or each.agent_end for each in self._nodes),
        )
