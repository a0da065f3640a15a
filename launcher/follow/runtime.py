"""What every runtime offers: containers on nodes and processes here differ only behind this."""

from collections.abc import Sequence
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
        """With a message that names its node, or several, itself."""
        made = cls(node, "")
        made.args = (message,)
        return made


class RunningNode(Protocol):
    """What a runtime gives for a started node."""

    plan: NodePlan
    ranks: dict[int, int]
    lost: str | None
    """Why the node counts as lost, if it does."""

    def fileno(self) -> int: ...
    def read(self) -> bytes: ...
    def poll(self) -> int | None: ...
    def joined(self) -> bool: ...
    def out_of_memory(self) -> str | None: ...
    def signal_ranks(self, signum: int, only: int | None = None) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Runtime(Protocol):
    """How planned nodes are started, all or none, and how it is proved that nothing is left of them."""

    survives: bool
    """Whether a job goes on without the launcher."""

    def start(self, nodes: Sequence[NodePlan], port: int) -> Sequence[RunningNode]: ...
    def watch(self) -> Sequence[str]: ...
    def release(self) -> None: ...
    def sweep(self) -> int: ...
