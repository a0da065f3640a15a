"""Several programs at once, each within the limit, whatever they leave behind."""

import os
import signal
from pathlib import Path

from launcher.base.parallel import run_all


def test_each_ends_in_its_own_way_and_within_the_limit() -> None:
    words = ("sh", "-c")
    ends = run_all([(*words, "echo a; exit 3"), (*words, "echo b >&2"), (*words, "echo c; exec sleep 600")], limit_s=5)
    assert [(end.code, end.out, end.err) for end in ends] == [(3, "a\n", ""), (0, "", "b\n"), (None, "c\n", "")]


def test_a_helper_that_keeps_the_output_open_is_not_waited_for(tmp_path: Path) -> None:
    """It is in a session of its own, so it isn't ended with the program, like a master connection of ssh."""
    note = tmp_path / "helper"
    helper = f"setsid sh -c 'echo $$ >{note}; exec sleep 600' & while [ ! -s {note} ]; do sleep 0.01; done"
    (end,) = run_all([("sh", "-c", f"{helper}; echo said; exit 3")], limit_s=5)
    assert (end.code, end.out) == (3, "said\n")
    os.kill(int(note.read_text()), signal.SIGKILL)  # fails if its end was waited for
