"""How the launcher answers requests to stop: once a graceful stop, twice stop now, three times kill."""

import signal
from collections.abc import Callable, Sequence

from launcher.follow.node_state import NodeState
from launcher.follow.shutdown import Shutdown
from launcher.follow.signal_inbox import SignalInbox

_REPORT_S = 5.0
"""How long a stop that was requested before we followed waits for every node to report its ranks."""


class SignalLadder:
    """Answers each request in the inbox with the next rung."""

    def __init__(
        self,
        inbox: SignalInbox,
        nodes: Sequence[NodeState],
        shutdown: Shutdown,
        note: Callable[[str], None],
        *,
        bundled: bool,
    ) -> None:
        """Args:
        bundled: the job runs the bundled trainer, which saves a checkpoint when it is asked to stop.
        """
        self._inbox = inbox
        self._nodes = nodes
        self._shutdown = shutdown
        self._note = note
        self._bundled = bundled
        self._answered = 0

    def answer(self, *, followed_s: float) -> None:
        """Answer the requests that are new.

        Args:
            followed_s: how long the job has been followed.
        """
        # A request from before we followed (`make stop`) waits until the nodes have said which ranks there are to ask.
        if not self._inbox.any_came and followed_s < _REPORT_S and not all(each.node.ranks for each in self._nodes):
            return
        while self._answered < len(self._inbox.stop_requests):
            self._answered += 1
            if self._answered == 1 and self._shutdown.begun:  # something had failed: the ranks were told to end
                self._note("killing")
                self._shutdown.kill()
            elif self._answered == 1 and self._shutdown.asked:
                # A second signal would end a program that is just writing its checkpoint.
                self._note("the ranks are ending already; Ctrl-C again: stop now")
            elif self._answered == 1:
                self._stop_gracefully(self._inbox.stop_requests[0])
            elif self._answered == 2:
                self._note("stopping now; once more: kill")
                self._shutdown.terminate()
            else:
                self._note("killing")
                self._shutdown.kill()

    def _stop_gracefully(self, signum: int) -> None:
        if not any(each.node.ranks for each in self._nodes):
            if self._inbox.any_came:
                self._note("stopping: nothing had started yet")
                self._shutdown.terminate()
                return
            # If a job has printed very much, its log no longer has what its ranks reported at their start.
            self._shutdown.ask_agents()
        action = "stopping after this step, with a checkpoint" if self._bundled else "asked the script to stop"
        self._note(f"{action}; Ctrl-C again: stop now")
        self._shutdown.ask_ranks(signal.SIGINT if signum == signal.SIGINT else signal.SIGTERM)
