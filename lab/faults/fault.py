"""What every fault has: it can be done and undone, from any process, and is undone when its `with` block ends."""

import contextlib
import dataclasses
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self


def setting(default: Any, meaning: str) -> Any:
    """A field of a fault that is an option on the command line, with what it means there."""
    return dataclasses.field(default=default, metadata={"help": meaning})


class Fault(ABC):
    """Nothing is remembered between the two: what a fault changed is found in the node itself."""

    @abstractmethod
    def apply(self) -> None: ...

    @abstractmethod
    def undo(self) -> None: ...

    def start(self) -> None:
        """Apply it, or, where that fails, leave nothing of it."""
        try:
            self.apply()
        except BaseException:
            with contextlib.suppress(Exception):  # what was done of it; the first error is the one to show
                self.undo()
            raise

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.undo()
