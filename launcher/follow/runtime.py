"""The interface of a runtime. Containers on nodes and processes on this machine differ only behind it."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from launcher.base.errors import ExitCode, RingmasterError
from launcher.job.plan import NodePlan


class NotStartedError(RingmasterError):
    """A node's part of a job can't be started."""

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(f"{node}: {reason}", exit_code=ExitCode.NOT_STARTED)
        self.node = node

    @classmethod
    def saying(cls, node: str, message: str) -> "NotStartedError":
        """Return the error with a message that itself names the node, or several nodes."""
        error = cls(node, "")
        error.args = (message,)
        return error


class RunningNode(Protocol):
    """A node that a runtime has started."""

    plan: NodePlan
    ranks: dict[int, int]
    """The process id of each rank's parent; the follower fills it in as they report."""
    lost: str | None
    """Why the node counts as lost, if it does. The runtime sets it; `events` takes it in."""
    incomplete: str | None
    """Why lines that it printed never reach us, if some don't; a report of its ranks may be among them."""

    clock_s: float
    """How many seconds the node's clock is ahead of ours."""

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the node has printed something."""

    def read(self) -> bytes:
        """Return what the node has printed since the last call; empty at the end of its output."""

    def poll(self) -> int | None:
        """Return the agent's exit code (negative: signal), None while it runs."""

    def joined(self) -> bool:
        """Return whether the agent has come to the rendezvous."""

    def out_of_memory(self) -> str | None:
        """Return where memory ran out, if something was killed for it: `node2 (limit 512 MiB)`. May take long."""

    def signal_ranks(self, signum: int, only: int | None = None) -> None:
        """Hand a signal to the program of every rank, or to that of one rank."""

    def terminate(self) -> None:
        """Ask the agent and its ranks to end."""

    def kill(self) -> None:
        """End the agent and its ranks at once."""


class Runtime(Protocol):
    """How planned nodes are started, all or none, and how it is proved that nothing is left of them."""

    survives: bool
    """Whether a job goes on without the launcher."""

    def start(self, nodes: Sequence[NodePlan], port: int) -> Sequence[RunningNode]:
        """Start every node, or none.

        Raises:
            NotStartedError: a node can't be started.
        """

    def watch(self) -> Sequence[str]:
        """Return the names of nodes that are out of reach now; mark as lost those that nobody reaches."""

    def news(self) -> Sequence[str]:
        """Return what the user should know of the nodes, a line each, and each once."""

    def unseen(self) -> Mapping[str, str]:
        """Return, by planned node, why it can't be told how it ended, in words: `container gone`, for example."""

    def release(self) -> None:
        """Let go of the nodes; their ranks go on if the runtime `survives` the launcher."""

    def sweep(self) -> int:
        """Make sure that nothing is left of the nodes; return how many processes had to be ended."""
