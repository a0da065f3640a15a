"""One build at a time on a node: the lock itself, with the real program, and a launcher that dies."""

import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import pytest

from launcher.base.errors import RingmasterError
from launcher.image import turn
from launcher.image.turn import turn_to_build
from launcher.ssh.connection import LostError
from tests.support.probe_answers import host


class Here:
    """A node that is this machine, for one program that goes on while we do something else."""

    name = "node1"

    def __init__(self, job_dir: Path) -> None:
        self.host = host(job_dir=str(job_dir))

    def stream(self, words: Sequence[str], *, stdin: Iterable[bytes], on_output: Callable[[bytes], None]) -> int:
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as program:
            assert program.stdin and program.stdout

            def listen() -> None:
                while data := program.stdout.read(100):  # type: ignore[union-attr]
                    on_output(data)

            listener = threading.Thread(target=listen)
            listener.start()
            for piece in stdin:
                self.forward(program.stdin, piece)
            program.stdin.close()
            listener.join()
            return program.wait()

    def forward(self, stdin: IO[bytes], piece: bytes) -> None:
        stdin.write(piece)


def test_the_second_waits_for_the_first_and_is_told(tmp_path: Path) -> None:
    said: list[str] = []
    told, second_has_it = threading.Event(), threading.Event()

    def say(text: str) -> None:
        said.append(text)
        told.set()

    def second() -> None:
        with turn_to_build(Here(tmp_path), say):  # type: ignore[arg-type]
            second_has_it.set()

    waiting = threading.Thread(target=second)
    with turn_to_build(Here(tmp_path), said.append):  # type: ignore[arg-type]
        waiting.start()
        assert told.wait(20)
        assert not second_has_it.is_set()
    assert second_has_it.wait(20)
    waiting.join(20)
    assert said == ["another launcher builds an image on node1: waiting for its end"]


def test_a_launcher_that_is_there_keeps_it_however_long_it_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn, "_BEAT_S", 0.01)
    heard, waits, second_has_it = threading.Semaphore(0), threading.Event(), threading.Event()

    class Counted(Here):
        def forward(self, stdin: IO[bytes], piece: bytes) -> None:
            super().forward(stdin, piece)
            heard.release()

    def second() -> None:
        with turn_to_build(Here(tmp_path), lambda _text: waits.set()):  # type: ignore[arg-type]
            second_has_it.set()

    waiting = threading.Thread(target=second)
    with turn_to_build(Counted(tmp_path), print):  # type: ignore[arg-type]
        waiting.start()
        assert waits.wait(20)
        for _ in range(50):
            assert heard.acquire(timeout=20)
        assert not second_has_it.is_set()
    assert second_has_it.wait(20)
    waiting.join(20)


def test_a_launcher_that_has_vanished_without_a_word_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its computer has no power any more: the node's sshd keeps the connection open, and nothing comes over it."""

    class Vanished(Here):
        def forward(self, stdin: IO[bytes], piece: bytes) -> None:
            pass

    monkeypatch.setattr(turn, "_SILENCE_S", 0.3)
    with turn_to_build(Vanished(tmp_path), print):  # type: ignore[arg-type]
        done = threading.Event()

        def second() -> None:
            with turn_to_build(Here(tmp_path), print):  # type: ignore[arg-type]
                done.set()

        threading.Thread(target=second, daemon=True).start()
        assert done.wait(20)


def test_where_nobody_can_build_either_nobody_waits(tmp_path: Path) -> None:
    nowhere = tmp_path / "not provisioned"
    with turn_to_build(Here(nowhere), print):  # type: ignore[arg-type]
        pass
    assert not nowhere.exists()


def test_a_line_that_breaks_ends_the_waiting(tmp_path: Path) -> None:
    class Broken(Here):
        def stream(self, *_: Any, **__: Any) -> int:
            raise LostError("node1", "closed")

    with pytest.raises(RingmasterError, match="node1: the connection is lost"):  # noqa: SIM117
        with turn_to_build(Broken(tmp_path), print):  # type: ignore[arg-type]
            raise AssertionError("nothing is built without the lock")
