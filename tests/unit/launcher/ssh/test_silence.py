"""A node that dies without a word is noticed, over a real connection; one that is slow but lives is never cut."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from launcher.ssh import dial, silence
from launcher.ssh.connection import LostError, Remote
from launcher.ssh.pool import connected
from launcher.ssh.silence import Patience
from tests.support.cluster.live_engine import until
from tests.support.cluster.sshd import Place


class Line:
    """A line to a node's sshd, which may fall silent either way without breaking."""

    def __init__(self, port: int) -> None:
        self.there, self.back = threading.Event(), threading.Event()
        self.there.set()
        self.back.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._serve, args=(port,), daemon=True).start()

    def _serve(self, port: int) -> None:
        with suppress(OSError):
            taken, _ = self._listener.accept()
            other = socket.create_connection(("127.0.0.1", port))
            self._ends += [taken, other]
            threading.Thread(target=self._pass, args=(taken, other, self.there), daemon=True).start()
            self._pass(other, taken, self.back)

    def _pass(self, source: socket.socket, target: socket.socket, flows: threading.Event) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                flows.wait()
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.there.set()
        self.back.set()
        for each in (self._listener, *self._ends):
            each.close()


@pytest.fixture
def line(place: Place) -> Iterator[Line]:
    line = Line(place.machine().port)
    yield line
    line.close()


@pytest.fixture
def far(place: Place, line: Line, monkeypatch: pytest.MonkeyPatch) -> Iterator[Remote]:
    """A node at the other end of the line, and little patience."""
    monkeypatch.setattr(dial, "_PATIENCE", Patience(every_s=0.02, limit_s=1.5, blind_s=2.0))
    place.pin(line.port, place.machines[0].key)
    with connected([place.host(line.port)], place.pins) as remotes:
        yield remotes["node1"]


def test_who_waits_for_a_program_learns_that_the_node_has_died(far: Remote, line: Line) -> None:
    line.there.clear()
    line.back.clear()
    with pytest.raises(LostError, match=r"node1: the connection is lost \(no sign of life for 1.5 s\)"):
        far.stream(["sleep", "60"], on_output=lambda data: None)
    assert not far.alive


def test_who_sends_much_learns_it_too(far: Remote, line: Line) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"begun"
        line.there.clear()
        line.back.clear()
        while True:
            yield b"x" * 65536

    with pytest.raises(LostError, match="no sign of life"):
        far.stream(["cat"], stdin=pieces(), on_output=lambda data: None)


def test_it_is_noticed_where_nobody_counts_what_moves(far: Remote, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "_count", lambda connection: None)
    line.back.clear()
    with pytest.raises(LostError, match="no sign of life"):
        far.stream(["sleep", "60"], on_output=lambda data: None)


def test_a_program_may_be_silent_as_long_as_the_node_answers(far: Remote) -> None:
    over = threading.Event()

    def nothing() -> Iterator[bytes]:
        over.wait(20)
        yield b"done"

    heard: list[bytes] = []
    watch = far._watch
    assert watch is not None
    thread = threading.Thread(target=lambda: far.stream(["cat"], stdin=nothing(), on_output=heard.append))
    thread.start()
    answered = watch._answered
    until(lambda: watch._answered > answered + 150)  # 150 answers take twice the limit at least
    over.set()
    thread.join(20)
    assert b"".join(heard) == b"done"


def test_as_long_as_data_moves_an_answer_may_be_late(far: Remote, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow line an answer stands behind other data: here none comes back until all was sent."""
    moves: list[object] = []
    count = silence._count

    def counted(connection: object) -> tuple[int, int] | None:
        now = count(connection)
        if now not in moves:
            moves.append(now)
        return now

    monkeypatch.setattr(silence, "_count", counted)

    def pieces() -> Iterator[bytes]:
        yield b"0"
        line.back.clear()
        for number in range(1, 300):
            threading.Event().wait(0.01)
            yield b"%d" % number
        line.back.set()

    assert far.run(["cat"], stdin=pieces()).text == "".join(map(str, range(300)))
    assert len(moves) > 3, "what moves was counted"


def test_the_threads_end_with_the_connection(far: Remote) -> None:
    assert far._watch is not None
    far.close()
    assert far._watch._ended.wait(20)
    assert far._watch.died == ""
