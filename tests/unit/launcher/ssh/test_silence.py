"""A node that dies without a word is noticed, over a real connection; one that is slow but lives is never cut."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from launcher.ssh import dial
from launcher.ssh.connection import LostError, Remote
from launcher.ssh.master import Patience
from launcher.ssh.pool import connected
from tests.support.cluster.live_engine import until
from tests.support.cluster.sshd import Place


class Line:
    """A line to a node's sshd, which may fall silent either way without breaking."""

    def __init__(self, port: int) -> None:
        self.there, self.back = threading.Event(), threading.Event()
        self.there.set()
        self.back.set()
        self.piece_s = 0.0
        """How long the next piece takes."""
        self.passed = 0
        """Pieces that came back."""
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
                threading.Event().wait(self.piece_s)
                self.passed += flows is self.back
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
    monkeypatch.setattr(dial, "_PATIENCE", Patience(every_s=1, times=2))
    place.pin(line.port, place.machines[0].key)
    with connected([place.host(line.port)], place.pins) as remotes:
        yield remotes["node1"]


def test_who_waits_for_a_program_learns_that_the_node_has_died(far: Remote, line: Line) -> None:
    line.there.clear()
    line.back.clear()
    with pytest.raises(LostError, match=r"node1: the connection is lost \(no sign of life for 2 s\)"):
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


def test_who_is_sent_much_learns_it_too(far: Remote, line: Line) -> None:
    def silence(_: bytes) -> None:
        line.back.clear()

    with pytest.raises(LostError, match="no sign of life"):
        far.stream(["cat", "/dev/zero"], on_output=silence)


def test_a_program_may_be_silent_as_long_as_the_node_answers(far: Remote, line: Line) -> None:
    over = threading.Event()

    def nothing() -> Iterator[bytes]:
        over.wait(60)
        yield b"done"

    heard: list[bytes] = []
    thread = threading.Thread(target=lambda: far.stream(["cat"], stdin=nothing(), on_output=heard.append))
    thread.start()
    passed = line.passed
    until(lambda: line.passed > passed + 5)  # each is an answer, and a second after the one before: twice the patience
    over.set()
    thread.join(20)
    assert b"".join(heard) == b"done"


def test_a_slow_line_is_never_cut_while_a_program_reads(far: Remote, line: Line) -> None:
    """Behind much else a question for a sign of life takes long; that its data is taken is a sign too."""
    line.piece_s = 0.1  # for 64 KiB: some five seconds for all, two and a half times the patience
    sent = b"0123456789abcdef" * (3 << 16)
    done = far.run(["sh", "-c", "cat | wc -c"], stdin=sent)
    assert done.text.strip() == str(len(sent))


def test_nothing_is_left_of_a_connection_that_is_closed(far: Remote) -> None:
    process, thread = far._master._process, far._master._listener
    far.close()
    assert process.poll() is not None
    thread.join(20)
    assert not (far.alive or thread.is_alive())
