"""What a rank's last lines say about the exception that ended it."""

import os
import subprocess
import sys

import pytest

from launcher.follow.tracebacks import before_late_abort, exception_line
from tests.support.ends import RAISED

PLAIN = ("Traceback (most recent call last):", "  File …", "ValueError: boom")
WORDS = "terminate called without an active exception"

ENDS_LIKE_GLOO = """
import ctypes, sys
libc, libstdcxx = ctypes.CDLL(None), ctypes.CDLL("libstdc++.so.6")
class Late:  # a thread of C++ ends the process while Python takes itself apart
    def __del__(self, libc=libc, end=ctypes.cast(libstdcxx._ZSt9terminatev, ctypes.c_void_p), c=ctypes):
        thread = c.c_ulong()
        libc.pthread_create(c.byref(thread), None, end, None)
        libc.pthread_join(thread, None)
late = Late()
print("hello")
if sys.argv[1] == "raise":
    raise ValueError("boom")
"""


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (RAISED, "ValueError: boom"),
        (
            ("Traceback (most recent call last):", "  x", "KeyError: 'a'", "", "During …", "", *RAISED),
            "ValueError: boom",
        ),
        (("Traceback (most recent call last):", "  x", "my.own.Oops", "exit"), "my.own.Oops"),
        (("ValueError: printed, not raised",), None),
        (("Traceback (most recent call last):",), None),
        ((), None),
    ],
)
def test_exception_line(lines: tuple[str, ...], expected: str | None) -> None:
    assert exception_line(lines) == expected


@pytest.mark.parametrize("dump", ["", "1"])
@pytest.mark.parametrize("how", ["raise", "end"])
def test_a_real_abort_while_python_ends(how: str, dump: str) -> None:
    environment = {**os.environ, "PYTHONFAULTHANDLER": dump, "PYTHONUNBUFFERED": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", ENDS_LIKE_GLOO, how],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert ended.returncode == -6 and WORDS in ended.stdout
    assert ("Fatal Python error: Aborted" in ended.stdout) == bool(dump)
    before = before_late_abort(ended.stdout.splitlines())
    if how == "end":
        assert before is None
    else:
        assert before is not None
        assert (before[0], before[-1]) == ("hello", "ValueError: boom")


@pytest.mark.parametrize("lines", [RAISED, PLAIN, (*RAISED[:-1], "[rank1]: ValueError: boom", "[rank1]: and more")])
@pytest.mark.parametrize(
    "after", [(WORDS,), ("", WORDS, "terminate called recursively", ""), (WORDS, "Fatal Python error: Aborted", "")]
)
def test_the_lines_before_it(lines: tuple[str, ...], after: tuple[str, ...]) -> None:
    assert before_late_abort((*lines, *after)) == lines


@pytest.mark.parametrize(
    "lines",
    [
        RAISED,
        (*RAISED, "goes on", WORDS),
        (*RAISED, WORDS, "goes on"),
        (*RAISED, "Fatal Python error: Aborted"),
        ("hello", WORDS),
        (WORDS,),
        (),
    ],
)
def test_anything_else_is_no_late_abort(lines: tuple[str, ...]) -> None:
    assert before_late_abort(lines) is None
