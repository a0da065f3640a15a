"""What all faults share: any process can apply and undo them, and the end of a `with` block undoes them."""

import contextlib
import dataclasses
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self


def setting(default: Any, meaning: str) -> Any:
    """Return a field of a fault that is an option on the command line, with its help there."""
    return dataclasses.field(default=default, metadata={"help": meaning})


class Fault(ABC):
    """A fault of a node or a link.

    Nothing is remembered between `apply` and `undo`: the node itself shows what was changed.
    """

    @abstractmethod
    def apply(self) -> None:
        """Make it happen."""

    @abstractmethod
    def undo(self) -> None:
        """Take it back, also where it was not applied."""

    def start(self) -> None:
        """Apply it; if that fails, leave nothing of it."""
        try:
            self.apply()
        except BaseException:
            with contextlib.suppress(Exception):  # the first error is the one to show
                self.undo()
            raise

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.undo()
