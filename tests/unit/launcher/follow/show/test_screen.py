"""What is shown on a terminal and off it. A reader that goes away, or reads nothing, is no reason to stop."""

import os
import pty
import re
import signal
import sys
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.base import caller
from launcher.follow.cause.failure import Failure
from launcher.follow.incidents import TOLD_TO_GO
from launcher.follow.progress import Progress
from launcher.follow.show import screen as module
from launcher.follow.show.screen import Screen
from tests.support.plans import facts, plan_for

FAILURE = Failure(
    node="node2", rank=1, exit_code=1, signal=None, reason="ValueError: [red]boom", log_tail=("a", "b"), hint="fix it"
)


class Reader:
    """Reads the other end of standard output, once it is told to."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.shown = b""
        self.thread = threading.Thread(target=self._read)

    def _read(self) -> None:
        while data := self._some():
            self.shown += data

    def _some(self) -> bytes:
        try:
            return os.read(self.descriptor, 1 << 16)
        except OSError:  # EIO: nobody has the terminal open any more
            return b""


@contextmanager
def standard_output(monkeypatch: pytest.MonkeyPatch, *, terminal: bool, reads: bool = True) -> Iterator[Reader]:
    """Yield the reader of a standard output that is a terminal or a pipe; afterwards it has read all."""
    ours, theirs = pty.openpty() if terminal else os.pipe()
    reader = Reader(ours)
    if reads:
        reader.thread.start()
    with os.fdopen(theirs, "w", encoding="utf-8") as stream, monkeypatch.context() as patch:
        patch.setenv("TERM", "xterm-256color")
        patch.setenv("COLUMNS", "100")
        patch.setattr(sys, "stdout", stream)
        yield reader
    if reader.thread.ident is None:
        reader.thread.start()
    reader.thread.join()
    os.close(ours)


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what is shown on a terminal."""
    with standard_output(monkeypatch, terminal=True) as reader:
        show(Screen(plan_for(facts(2))))
    return reader.shown.decode()


def show(screen: Screen) -> None:
    with screen:
        screen.banner("torch 2.15.0")
        screen.output("node2", 1, [b"loss \x1b[31mred\x1b[0m \x1b[2J\xff"])
        screen.progress(Progress(step=5, total_steps=10, epoch=1, epochs=2, loss=0.5, images_per_s=1234.0))
        screen.catch_up()
        screen.failure(FAILURE, "runs/x/logs/node2.log")


def test_plain_lines_off_a_terminal(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    show(Screen(plan_for(facts(2))))
    out = capfdbinary.readouterr().out
    assert b"node2:1 | loss \x1b[31mred\x1b[0m \x1b[2J\xff\n" in out, "a rank's bytes are kept as they are"
    assert b"FAILED: node2 rank 1: ValueError: [red]boom\n" in out
    assert b"hint: fix it" in out
    assert b"step 5" not in out


def test_colours_a_live_line_and_a_box_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = on_a_terminal(monkeypatch)
    assert "\x1b[35mnode2:1 | \x1b[0mloss \x1b[31mred" in out
    assert "step 5" in out and "1,234 images/s" in out
    assert "\x1b[2J" not in out, "escapes that would move the cursor are dropped"
    assert "╭" in out and "FAILED: node2 rank 1" in out and "[red]boom" in out
    assert out.rindex("\r\x1b[2K") < out.index("╭"), "the live line is gone when the box is shown"


@pytest.mark.parametrize("terminal", [True, False])
def test_words_from_nodes_do_not_steer_the_terminal(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    bad = "\x1b]52;c;aGk=\x07\x1b[2J\x9b2J\r"
    failure = Failure(
        node=f"node2{bad}", rank=1, exit_code=1, signal=None, reason=f"{bad}boom", log_tail=(f"a{bad}", "b"),
        hint=f"fix{bad} it",
    )  # fmt: skip
    incidents = [{"kind": TOLD_TO_GO, "node": f"node1{bad}"}]
    figures = dict.fromkeys(("test_accuracy", "epochs", "images_per_s", "first_step_s", "wall_s"))
    plan = plan_for(facts(2))  # of a job that is followed again; it lies on a node
    plan = replace(plan, backend=f"gloo{bad}", nodes=tuple(replace(one, devices=(bad,)) for one in plan.nodes))
    with standard_output(monkeypatch, terminal=terminal) as reader, Screen(plan) as screen:
        screen.banner(f"torch{bad} 2.15.0")
        screen.note(f"node1: {bad}no room")
        screen.failure(failure, "logs")
        screen.result({"state": "stopped", "incidents": incidents, "checkpoint": f"{bad}x", **figures}, "report")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", reader.shown.decode()).replace("\r\n", "\n").replace("\r\x1b[2K", "")
    assert not [each for each in shown if unicodedata.category(each) == "Cc" and each != "\n"]
    assert shown.replace("\n", "").count(r"52;c;aGk=") == 11


def test_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    out = on_a_terminal(monkeypatch)
    assert "node2:1 | loss red" in out
    assert not any(f"\x1b[{code}m" in out for code in (*range(31, 38), *range(91, 98)))


def test_a_box_on_a_narrow_terminal_holds_every_word(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"word{number}" for number in range(40)]
    with standard_output(monkeypatch, terminal=True) as reader:
        monkeypatch.setenv("COLUMNS", "40")
        with Screen(plan_for(facts(2))) as screen:
            screen.failure(replace(FAILURE, reason=" ".join(words)), "logs")
    shown = reader.shown.decode()
    assert all(word in shown for word in words)


def test_a_narrow_terminal_gets_a_live_line_of_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    with standard_output(monkeypatch, terminal=True) as reader:
        monkeypatch.setenv("COLUMNS", "20")
        monkeypatch.setenv("NO_COLOR", "1")
        with Screen(plan_for(facts(2))) as screen:
            screen.progress(Progress(step=5, total_steps=10, loss=0.5, images_per_s=1234.0))
            screen.catch_up()
    live = reader.shown.decode().split("\r\x1b[2K")
    assert any("…" in line for line in live), "cut to its width"
    assert all(len(line) < 20 and "\n" not in line for line in live)


@pytest.mark.parametrize("how", ["pipe", "full"])
def test_a_reader_that_goes_away_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    if how == "pipe":
        reading, writing = os.pipe()
        os.close(reading)
    else:
        writing = os.open("/dev/full", os.O_WRONLY)
    with os.fdopen(writing, "w", closefd=True) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        show(Screen(plan_for(facts(2))))  # mute() turns the stream to nowhere, so that closing it is quiet too


LINES = [b"x" * 90] * 1000


@pytest.mark.parametrize("terminal", [True, False])
def test_a_reader_that_reads_nothing_holds_up_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, terminal: bool
) -> None:
    monkeypatch.setattr(module, "_IMPATIENCE_S", 0.0)
    with standard_output(monkeypatch, terminal=terminal, reads=False):
        with Screen(plan_for(facts(2)), tmp_path) as screen:
            for _ in range(100):
                screen.output("node1", 0, LINES)
                screen.note("a note")
            screen.hurried = True
        print("ringmaster: exit 130", flush=True)  # as the command does at its end


def test_a_pipe_that_is_read_late_gets_every_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with standard_output(monkeypatch, terminal=False, reads=False) as reader:
        with Screen(plan_for(facts(2)), tmp_path) as screen:
            for number in range(100):
                screen.output("node1", 0, [b"%d %s" % (number, line) for line in LINES])
            screen.note("the end")
            reader.thread.start()
        assert list(tmp_path.iterdir()) == [], "what memory shouldn't hold is in no file that anybody sees"
    lines = [b"node1:0 | %d %s" % (number, line) for number in range(100) for line in LINES]
    assert reader.shown.splitlines() == [*lines, b"ringmaster: the end"]


def test_a_terminal_that_is_read_late_says_where_the_rest_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    with (
        standard_output(monkeypatch, terminal=True, reads=False) as reader,
        Screen(plan_for(facts(2)), tmp_path) as screen,
    ):
        screen.note("the beginning")
        for number in range(100):
            screen.output("node1", 0, [b"%d %s" % (number, line) for line in LINES])
        screen.note("the end")
        reader.thread.start()
    shown = reader.shown.decode()
    assert f"lines of node1 skipped here: see {tmp_path / 'node1.log'}" in shown
    assert shown.index("the beginning") < shown.index("skipped here") < shown.index("the end")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_for_a_reader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, signum: int) -> None:
    monkeypatch.setattr(module, "_has_terminal", lambda: True)  # a pager: it is waited for without a limit
    before = signal.signal(signum, signal.SIG_IGN)
    with standard_output(monkeypatch, terminal=False, reads=False), Screen(plan_for(facts(2)), tmp_path) as screen:
        screen.output("node1", 0, LINES)
        waits = screen._printer.wait

        def signalled(*arguments: object) -> bool:
            os.kill(os.getpid(), signum)
            return waits(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(screen._printer, "wait", signalled)
    assert signal.getsignal(signum) == signal.SIG_IGN
    signal.signal(signum, before)


def test_a_path_is_shown_in_full_where_the_users_folder_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The printer's thread shows paths, too: an error there would be the last of the job that anybody sees."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert caller.shown(tmp_path / "runs") == str(tmp_path / "runs")
