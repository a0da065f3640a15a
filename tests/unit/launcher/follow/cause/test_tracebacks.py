"""What a rank's last lines say about the exception that ended it."""

import os
import subprocess
import sys

import pytest

from launcher.follow.cause.tracebacks import before_late_abort, exception_line, last_words, raised
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


SHOWN = [
    ("def f():\n    raise ExceptionGroup('several', [ValueError('boom'), TypeError('x')])\nf()",
     "ExceptionGroup: several (2 sub-exceptions): ValueError: boom"),
    ("raise ExceptionGroup('outer', [ExceptionGroup('inner', [KeyError('k')]), ValueError('v')])",
     "ExceptionGroup: outer (2 sub-exceptions): KeyError: 'k'"),
    ("try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise ValueError('boom') from error",
     "ValueError: boom (caused by: ZeroDivisionError: division by zero)"),
    ("try:\n    {}['a']\nfinally:\n    raise ValueError('late')",
     "ValueError: late (while handling: KeyError: 'a')"),
    ("try:\n    {}['a']\nexcept KeyError:\n    raise ValueError('alone') from None", "ValueError: alone"),
    ("error = ValueError('boom')\nerror.add_note('in file 7')\nraise error", "ValueError: boom"),
    ("raise ValueError('\\nfirst\\nsecond')", "ValueError: first"),
    ("raise RuntimeError('Error(s) in loading state_dict for Net:\\n\\tMissing key(s): w')",
     "RuntimeError: Error(s) in loading state_dict for Net: Missing key(s): w"),
    ("class Oops(Exception):\n    pass\nraise Oops('mine')", "Oops: mine"),
    ("assert 1 == 2", "AssertionError (<string>, line 1)"),
    ("def def", "SyntaxError: invalid syntax (<string>, line 1)"),
    ("import threading\ndef work():\n    raise ValueError('in a thread')\n"
     "t = threading.Thread(target=work)\nt.start()\nt.join()\nraise SystemExit(1)", "ValueError: in a thread"),
    ("import multiprocessing.pool\nimport sys\nif __name__ == '__main__':\n"
     "    with multiprocessing.get_context('fork').Pool(1) as pool:\n        pool.map(int, ['x'])",
     "ValueError: invalid literal for int() with base 10: 'x'"),
    ("raise KeyboardInterrupt", "KeyboardInterrupt (<string>, line 1)"),
]  # fmt: skip


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups and notes are new in 3.11")
@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize(("program", "text"), SHOWN)
def test_what_python_itself_shows(program: str, text: str, marked: bool) -> None:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode != 0
    lines = ended.stderr.splitlines()
    if marked:
        lines = [f"[rank3]: {line}" for line in lines]
    found = raised(lines)
    assert found is not None and found.text == text


SPAWNED = (
    "Traceback (most recent call last):",
    '  File "spawn.py", line 188, in start_processes',
    "torch.multiprocessing.spawn.ProcessRaisedException: ",
    "",
    "-- Process 1 terminated with the following error:",
    "Traceback (most recent call last):",
    '  File "train.py", line 161, in main_worker',
    "ValueError: boom",
    "",
)
HYDRA = (
    "Error executing job with overrides: ['lr=1']",
    "Traceback (most recent call last):",
    '  File "train.py", line 9, in main',
    "ValueError: boom",
    "",
    "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.",
)
RICH = (
    "╭───────────── Traceback (most recent call last) ─────────────╮",
    "│ train.py:12 in main                                          │",
    "╰──────────────────────────────────────────────────────────────╯",
    "ValueError: boom",
)


@pytest.mark.parametrize(
    ("lines", "text"),
    [(SPAWNED, "ValueError: boom (in process 1, which the script started)"), (HYDRA, "ValueError: boom"),
     (RICH, "ValueError: boom"), (("Traceback (most recent call last):", "  x", "ValueError: " + "y" * 900), None)],
)  # fmt: skip
def test_what_launchers_and_decorations_make_of_it(lines: tuple[str, ...], text: str | None) -> None:
    found = raised(lines)
    assert found is not None and (found.text == text or (text is None and len(found.text) == 501))


def test_the_first_of_a_chain_is_known() -> None:
    chain = (*PLAIN, "", "During handling of the above exception, another exception occurred:", "", *PLAIN[:2], "E: 2")
    found = raised(chain)
    assert found is not None and (found.first, found.line) == ("ValueError: boom", "E: 2")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("Usage: x.py [OPTIONS]", "", "Error: No such option: --foo"), "Error: No such option: --foo"),
        (("╭─ Error ─────────────╮", "│ No such option: --foo │", "╰────────────────────╯"), "No such option: --foo"),
        (
            ("Key 'foo' is not in struct", "Set the environment variable HYDRA_FULL_ERROR=1 for …"),
            "Key 'foo' is not in struct",
        ),
        (("",), ""),
    ],
)
def test_last_words(lines: tuple[str, ...], words: str) -> None:
    assert last_words(lines) == words
