"""What every fault has: it can be done and undone, from any process, and is undone when its `with` block ends."""

import contextlib
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Fault(ABC):
    """Nothing is remembered between the two: what a fault changed is found in the node itself."""

    @abstractmethod
    def apply(self) -> None: ...

    @abstractmethod
    def undo(self) -> None: ...

    def __enter__(self) -> Self:
        try:
            self.apply()
        except BaseException:
            with contextlib.suppress(Exception):  # what was done of it; the first error is the one to show
                self.undo()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.undo()
