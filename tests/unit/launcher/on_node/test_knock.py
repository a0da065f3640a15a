"""What one node sees of another: how its ports answer, and what open connections say."""

import json
import socket
import threading
from collections.abc import Iterator

import pytest

from launcher.cluster.peer_view import parse
from launcher.on_node import knock


class TestKnocking:
    @pytest.fixture
    def listener(self) -> Iterator[socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            yield listener

    def answer(self, listener: socket.socket, greeting: bytes) -> str:
        def serve() -> None:
            taken, _ = listener.accept()
            taken.sendall(greeting)
            taken.close()

        thread = threading.Thread(target=serve)
        thread.start()
        found = knock.knock("127.0.0.1", listener.getsockname()[1])
        thread.join()
        return found

    def test_what_speaks_and_what_hangs_up(self, listener: socket.socket) -> None:
        assert self.answer(listener, b"SSH-2.0\r\n") == "greets"
        assert self.answer(listener, b"") == "closes"

    def test_what_says_nothing(self, listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(knock, "_GREETING_S", 0.01)
        assert knock.knock("127.0.0.1", listener.getsockname()[1]) == "silent"

    def test_where_nobody_listens(self, listener: socket.socket) -> None:
        port = listener.getsockname()[1]
        listener.close()
        assert knock.knock("127.0.0.1", port) == "refuses"
        assert knock.knock("256.0.0.1", port) == "nothing"

    def test_the_whole_answer(self, listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(knock, "_GREETING_S", 0.01)
        port = listener.getsockname()[1]
        view = parse(json.dumps(knock.look("127.0.0.1", [port], {port})))
        assert view is not None and view.ports == {port: "silent"}


SS = """State Recv-Q Send-Q Local Address:Port Peer Address:Port Process
ESTAB 0 0 10.0.0.1:43210 10.0.0.2:29500 cubic wscale:7,7 rto:204 lastsnd:900 lastrcv:1200 lastack:900
ESTAB 0 99 [::ffff:10.0.0.1]:40000 [::ffff:10.0.0.2]:41000 cubic rto:6528 backoff:5 lastsnd:7 lastrcv:9000 unacked:3
ESTAB 0 0 10.0.0.1:22 10.0.0.2:51000 cubic lastsnd:1 lastrcv:1 lastack:1
ESTAB 0 0 10.0.0.1:43211 10.0.0.3:29500 cubic lastsnd:2 lastrcv:2 lastack:2
LISTEN 0 128 0.0.0.0:22 0.0.0.0:*
"""


@pytest.mark.parametrize(
    ("address", "heard_s", "stuck"), [("10.0.0.2", 1.2, True), ("10.0.0.3", 0.002, False), ("10.0.0.4", None, False)]
)
def test_what_open_connections_say(address: str, heard_s: float | None, stuck: bool) -> None:
    assert knock.connections(SS, address, {22}) == {"heard_s": heard_s, "stuck": stuck}
