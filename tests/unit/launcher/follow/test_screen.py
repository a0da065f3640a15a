"""What is shown on a terminal and off it. A reader that goes away is no reason to stop."""

import io
import os
import sys

import pytest

from launcher.follow.failure import Failure
from launcher.follow.progress import Progress
from launcher.follow.screen import Screen
from tests.support.plans import facts, plan_for

FAILURE = Failure(
    node="node2", rank=1, exit_code=1, signal=None, reason="ValueError: [red]boom", log_tail=("a", "b"), hint="fix it"
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what is shown on a terminal."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    show(Screen(plan_for(facts(2))))
    return terminal.getvalue()


def show(screen: Screen) -> None:
    with screen:
        screen.banner("torch 2.15.0")
        screen.line("node2", 1, b"loss \x1b[31mred\x1b[0m \x1b[2J\xff")
        screen.progress(Progress(step=5, total_steps=10, epoch=1, epochs=2, loss=0.5, images_per_s=1234.0))
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
    assert "\x1b[" in out
    assert "step 5" in out and "1,234 images/s" in out
    assert "\x1b[2J" not in out, "escapes that would move the cursor are dropped"
    assert "╭" in out and "FAILED: node2 rank 1" in out and "[red]boom" in out


def test_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    out = on_a_terminal(monkeypatch)
    assert "node2:1 | loss red" in out
    assert not any(f"\x1b[{code}m" in out for code in (*range(31, 38), *range(91, 98)))


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
