"""An engine whose container keeps running and printing."""

import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from launcher.cluster.sockets import SOCKETS
from launcher.inventory.hosts import Host
from launcher.ssh.connection import Finished, LostError
from tests.support.cluster.engine import FakeEngine, stamp


def until(condition: Callable[[], Any]) -> None:
    """Wait for the condition; fail if it never becomes true."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.01)


class LiveEngine(FakeEngine):
    """An engine with one container, which prints `lines` and ends when the test says so."""

    def run(self, *lines: str) -> str:
        self.lines = [line.encode() for line in lines]
        self.connected = True
        return self.put("job")

    def end(self, code: int) -> None:
        (one,) = self.inspected.values()
        one["State"] |= {"Status": "exited", "ExitCode": code}

    def logs(self, container: str, *, tail: int | str, follow: bool, **_: Any) -> Iterator[bytes]:
        self._alive()
        self._known(container)
        printed = max(0, len(self.lines) - tail) if isinstance(tail, int) else 0
        while True:
            self._alive()
            over = container in self.inspected and self.inspected[container]["State"]["Status"] == "exited"
            for line in self.lines[printed:]:
                yield f"{stamp(printed)} ".encode() + line + b"\n"
                printed += 1
            if over or not follow or container not in self.inspected:
                return
            time.sleep(0.005)

    def inspect_container(self, container: str) -> Any:
        self._alive()
        return super().inspect_container(container)

    def _alive(self) -> None:
        if not self.connected:
            raise ConnectionResetError("the wire is cut")


class FakeRemote:
    """A connection that can be cut."""

    port = 22

    def __init__(self, engine: LiveEngine, name: str = "node1") -> None:
        self.host = Host(name=name, address=f"{name}.example")
        self.name = name
        self.table = ""
        self.clock_s = 0.0
        self.cut = False
        self.closed = False
        self._engine = engine

    def engine(self) -> LiveEngine:
        if self.cut:
            raise LostError(self.name, "cut")
        return self._engine

    def run(self, words: Sequence[str], *, limit_s: float) -> Finished:
        if self.cut:
            raise LostError(self.name, "cut")
        if words[0] == "date":
            return Finished(code=0, out=f"{time.time() + self.clock_s:.9f}\n".encode(), err=b"")
        assert tuple(words) == SOCKETS
        return Finished(code=0, out=self.table.encode(), err=b"")

    def sftp(self) -> Any:
        if self.cut:
            raise LostError(self.name, "cut")
        return SimpleNamespace(stat=lambda path: None)

    def close(self) -> None:
        self.closed = True
