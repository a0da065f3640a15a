"""One build at a time on a node: the lock itself, with the real program, and a launcher that dies."""

import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from launcher.base.errors import RingmasterError
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
            list(stdin)
            program.stdin.close()
            listener.join()
            return program.wait()


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
