"""The image's relay: a blob is handed on while it arrives, and a node that fails costs only itself."""

import contextlib
import hashlib
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible.module_utils.ringmaster.image import relay
from ansible.module_utils.ringmaster.image.relay import Blob, Chain, LackingError, Server, SourceError, Store
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.image_relay import CONTENT, DIGEST, NAME, ask, running


class SimulatedNode:
    """A node of a chain, which fails once it has sent so many bytes."""

    def __init__(self, folder: Path, before: "list[SimulatedNode]", lives: int | None) -> None:
        folder.mkdir()
        self.left = lives
        self.received = 0
        self.chain = Chain([(f"node{place}", self.counted(node)) for place, node in enumerate(before)], pause_s=0)
        self.blob = Blob(str(folder), DIGEST)
        self.thread = threading.Thread(target=self.blob.fill, args=(self.chain,), daemon=True)

    def counted(self, before: "SimulatedNode") -> relay.Fetch:
        def fetch(_digest: str, offset: int) -> tuple[int, Iterator[bytes]]:
            if before.left == 0:
                raise SourceError("it has failed")
            return len(CONTENT), self.count(before.pieces(offset))

        return fetch

    def count(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for data in pieces:
            self.received += len(data)
            yield data

    def pieces(self, offset: int) -> Iterator[bytes]:
        try:
            for data in self.blob.read(offset):
                for start in range(0, len(data), 64):
                    if self.left is not None:
                        self.left = max(0, self.left - 64)
                    if self.left == 0:
                        raise SourceError("it has failed")
                    yield data[start : start + 64]
        except OSError as error:
            raise SourceError(str(error)) from error


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A blob is given up once all nodes before this one were asked."""
    monkeypatch.setattr(relay, "GIVE_UP_S", 0)


lifetimes = st.none() | st.integers(0, 3 * len(CONTENT))


@pytest.mark.usefixtures("no_patience")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=lifetimes, lives=st.lists(lifetimes, min_size=1, max_size=6), data=st.data())
def test_every_node_has_every_byte_once_or_says_why(
    first: int | None, lives: list[int | None], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    top = tmp_path_factory.mktemp("chain")
    nodes = [SimulatedNode(top / "first", [], first)]
    (top / "first" / DIGEST).write_bytes(CONTENT)
    nodes[0].blob = Blob(str(top / "first"), DIGEST)
    for number, life in enumerate(lives):
        nodes.append(SimulatedNode(top / str(number), nodes[::-1], life))
    for node in data.draw(st.permutations(nodes[1:])):
        node.thread.start()
    for node in nodes[1:]:
        node.thread.join(20)
        assert not node.thread.is_alive()
        if first is None:  # those between may all have failed: whoever fails costs only itself
            assert node.blob.problem == ""
        if node.blob.problem:
            assert "no node of the chain sends it, as node" in node.blob.problem
            assert node.received < len(CONTENT)
        else:
            assert Path(node.blob.path).read_bytes() == CONTENT
            assert node.received == len(CONTENT)


@pytest.mark.usefixtures("no_patience")
def test_a_blob_that_nobody_sends_says_why_and_is_not_searched_for_at_each_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    def refuse(_digest: str, offset: int) -> tuple[int, Iterator[bytes]]:
        tries.append(offset)
        raise SourceError("not reached by SSH: Permission denied")

    store = Store(str(tmp_path), Chain([("node1", refuse)], pause_s=0, log=str(tmp_path / "moved")))
    blob = store.get(DIGEST)
    assert blob is not None
    with pytest.raises(OSError, match=r"as node1: not reached by SSH: Permission denied: run `make provision TAGS=ssh"):
        blob.wait_size()
    assert tries == [0]
    assert (tmp_path / "moved").read_text() == "node1: not reached by SSH: Permission denied\n"
    assert store.get(DIGEST) is blob
    assert store.state()["problem"] == blob.problem
    monkeypatch.setattr(blob, "_again_at", 0)
    assert store.get(DIGEST) is not blob
    assert store.state()["problem"] == ""


def test_a_node_that_lacks_a_blob_has_not_failed(tmp_path: Path) -> None:
    lacking, asked = [True], []

    def near(_digest: str, offset: int) -> tuple[int, Iterator[bytes]]:
        asked.append("near")
        if lacking[0]:
            raise LackingError("the registry of this delivery hasn't it")
        return len(CONTENT), iter([CONTENT[offset:]])

    def far(_digest: str, _offset: int) -> tuple[int, Iterator[bytes]]:
        asked.append("far")
        raise LackingError("the registry of this delivery hasn't it")

    chain = Chain([("node2", near), ("node1", far)], pause_s=0, log=str(tmp_path / "moved"))
    store = Store(str(tmp_path), chain)
    with running(store) as server:
        status, _, answer = ask(server, "GET", f"{NAME}/blobs/sha256:{DIGEST}")
        assert (status, asked) == (404, ["near", "far"])
        assert b"hasn't it" in answer
        assert ask(server, "GET", f"{NAME}/blobs/sha256:{DIGEST}")[0] == 404
        state = {"problem": "", "sending": 0}
        assert (len(asked), relay.state(server.server_address[1])) == (2, state)
    assert (chain.current, (tmp_path / "moved").exists()) == (0, False)
    lacking[0] = False
    blob = Blob(str(tmp_path), DIGEST)
    blob.fill(chain)
    assert (blob.problem, asked[-1]) == ("", "near")


def test_a_relay_that_nothing_reaches_says_so_to_the_one_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, whether the size is known or not; an engine, which has nowhere else to go, waits."""
    more = threading.Event()

    def slow() -> Iterator[bytes]:
        yield CONTENT[:100]
        more.wait(30)
        yield CONTENT[100:]

    store = Store(str(tmp_path), Chain([("node1", lambda *_: (len(CONTENT), slow()))]))
    place = f"{NAME}/blobs/sha256:{DIGEST}"
    with running(store) as server:
        blob = store.get(DIGEST)
        assert blob is not None and next(blob.read(0)) == CONTENT[:100]
        monkeypatch.setattr(relay, "STALLED_S", 0)
        status, _, answer = ask(server, "GET", place, **{"Range": "bytes=100-", "Ringmaster-Relay": "1"})
        assert (status, b"nothing reaches it either" in answer) == (503, True)
        engine = threading.Thread(target=lambda: heard.append(ask(server, "GET", place, Range="bytes=100-")))
        heard: list[tuple[int, dict[str, str], bytes]] = []
        engine.start()
        stream = relay_stream(server, place, 99)
        assert next(stream) == CONTENT[99:100]
        assert relay.state(server.server_address[1])["sending"] in (1, 2)  # the engine may not have come yet
        more.set()
        engine.join(30)
    assert [(status, content) for status, _, content in heard] == [(206, CONTENT[100:])]


def relay_stream(server: Server, place: str, offset: int) -> Iterator[bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", place, headers={"Range": f"bytes={offset}-", "Ringmaster-Relay": "1"})
        answer = connection.getresponse()
        assert answer.status == 206
        while data := answer.read1():
            yield data


def test_what_an_interrupted_delivery_has_left_is_not_sent_again(tmp_path: Path) -> None:
    (tmp_path / f"{DIGEST}.part").write_bytes(CONTENT[:1000])
    asked: list[int] = []

    def send(_digest: str, offset: int) -> tuple[int, Iterator[bytes]]:
        asked.append(offset)
        return len(CONTENT), iter([CONTENT[offset:]])

    blob = Blob(str(tmp_path), DIGEST)
    blob.fill(Chain([("node1", send)]))
    assert (asked, blob.problem) == ([1000], "")
    assert (tmp_path / DIGEST).read_bytes() == CONTENT


def test_what_was_left_before_the_node_started_anew_is_not_trusted(tmp_path: Path) -> None:
    """A power cut leaves the length of a file, and zeros where bytes should be."""
    part, whole, upload = tmp_path / f"{DIGEST}.part", tmp_path / ("0" * 64), tmp_path / "1.upload"
    relay.tidy(str(tmp_path), "first boot")
    for path in (part, whole, upload):
        path.write_bytes(b"left")
    relay.tidy(str(tmp_path), "first boot")
    assert (part.exists(), whole.exists(), upload.exists()) == (True, True, False)
    relay.tidy(str(tmp_path), "second boot")
    assert (part.exists(), whole.exists()) == (False, True)
    part.write_bytes(b"left")
    (tmp_path / "boot").write_text("")  # the power cut's, too
    relay.tidy(str(tmp_path), "second boot")
    assert not part.exists()


def test_what_another_users_relay_has_left_is_not_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only that user can read it: it would be announced, and then not sent."""
    relay.tidy(str(tmp_path), "boot")
    (tmp_path / DIGEST).write_bytes(CONTENT)
    relay.tidy(str(tmp_path), "boot")
    assert (tmp_path / DIGEST).exists()
    own = os.geteuid()
    monkeypatch.setattr(relay.os, "geteuid", lambda: own + 1)
    relay.tidy(str(tmp_path), "boot")
    assert [path.name for path in tmp_path.iterdir()] == ["boot"]


def test_wrong_bytes_are_thrown_away_and_fetched_from_another_node(tmp_path: Path) -> None:
    wrong = bytes(len(CONTENT))
    handed_on = threading.Event()

    def send_wrong(*_: object) -> tuple[int, Iterator[bytes]]:
        return len(wrong), (
            wrong[half] for half in (slice(0, 8), slice(8, None)) if half.start == 0 or handed_on.wait(30)
        )

    chain = Chain([("node2", send_wrong), ("node1", lambda *_: (len(CONTENT), iter([CONTENT])))])
    store = Store(str(tmp_path), chain)
    first = store.get(DIGEST)
    assert first is not None
    pieces = first.read(0)
    begin = next(pieces)
    handed_on.set()
    assert begin + b"".join(pieces) == wrong  # handed on before it could be checked: whoever has it checks it too
    while not first.problem:
        time.sleep(0.001)
    assert first.problem == "what arrived from node2 has another SHA-256"
    assert list(tmp_path.iterdir()) == []
    second = store.get(DIGEST)
    assert second is not None and b"".join(second.read(0)) == CONTENT


def test_a_full_disk_is_not_blamed_on_the_chain(tmp_path: Path) -> None:
    blob = Blob(str(tmp_path / "none"), DIGEST)
    chain = Chain([("node1", lambda *_: pytest.fail("it was asked"))])
    blob.fill(chain)
    assert "No such file" in blob.problem


def test_a_full_disk_is_the_reason_here_and_for_the_node_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Blob, "_resume", lambda *_: hashlib.sha256())  # it would read on and on
    (tmp_path / f"{DIGEST}.part").symlink_to("/dev/full")
    store = Store(str(tmp_path), Chain([("node1", lambda *_: (len(CONTENT), iter([CONTENT])))]))
    blob = store.get(DIGEST)
    assert blob is not None
    while not blob.problem:
        time.sleep(0.001)
    assert store.chain is not None and store.chain.current == 0
    with running(store) as server:
        status, _, answer = ask(server, "GET", f"{NAME}/blobs/sha256:{DIGEST}", **{"Ringmaster-Relay": "1"})
        assert status == 502
        assert json.loads(answer)["errors"][0]["message"] == f"No space left on device in {tmp_path}"
        assert relay.state(server.server_address[1])["problem"] == f"No space left on device in {tmp_path}"


def test_nobody_waits_for_ever_whatever_another_node_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON has characters that no file can have."""

    def refuse(*_: object) -> tuple[int, Iterator[bytes]]:
        raise SourceError("half of a pair: \ud800")

    monkeypatch.setattr(relay, "GIVE_UP_S", 0)
    blob = Blob(str(tmp_path), DIGEST)
    blob.fill(Chain([("node1", refuse)], pause_s=0, log=str(tmp_path / "moved")))
    assert "node1: half of a pair" in blob.problem
    assert (tmp_path / "moved").read_text() == "node1: half of a pair: ?\n"


def test_a_source_with_another_size_is_left(tmp_path: Path) -> None:
    def short(_digest: str, _offset: int) -> tuple[int, Iterator[bytes]]:
        return len(CONTENT), iter([CONTENT[:10]])

    def longer(_digest: str, _offset: int) -> tuple[int, Iterator[bytes]]:
        return 10**12, iter([bytes(10)])

    def right(_digest: str, offset: int) -> tuple[int, Iterator[bytes]]:
        return len(CONTENT), iter([CONTENT[offset:]])

    blob = Blob(str(tmp_path), DIGEST)
    blob.fill(Chain([("node3", short), ("node2", longer), ("node1", right)], log=str(tmp_path / "moved")))
    assert blob.problem == ""
    assert "node2: it says 1000000000000 bytes where another node said 2048" in (tmp_path / "moved").read_text()


def test_it_runs_alone(tmp_path: Path) -> None:
    source = Path(relay.__file__).read_text(encoding="ascii")
    words = [sys.executable, "-IS", "-c", source, str(tmp_path), "0"]
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "left.upload").touch()
    process = subprocess.Popen(words)
    try:
        while (tmp_path / "blobs" / "left.upload").exists() and process.poll() is None:
            time.sleep(0.01)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
