"""How a rank's process ends: with its exit code, after all exit functions, but without Python's finalization."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = """
import atexit, os, runpy, sys
import trainer.config.run_config

class Late:  # lives until Python's finalization, like a C++ thread that still needs Python
    def __del__(self):
        os.write(1, b"Python took itself apart")

late = Late()
original = trainer.config.run_config.parse
def parse(*arguments):
    atexit.register(print, "exit functions ran")
    return 1 / 0 if how == "raise" else original(*arguments)
how = sys.argv.pop(1)
trainer.config.run_config.parse = parse
runpy.run_module("trainer", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    ("how", "flags", "code", "words"),
    [
        ("run", ["--help"], 0, "usage: trainer"),
        ("run", ["--epochs", "none"], 2, "argument --epochs"),
        ("run", ["--dataset", "synthetic", "--run-dir", "/dev/null/run"], 2, "trainer: error: /dev/null/run"),
        ("raise", [], 1, "ZeroDivisionError: division by zero"),
    ],
)
def test_the_exit_code_stands_whatever_other_threads_do(how: str, flags: list[str], code: int, words: str) -> None:
    ended = subprocess.run([sys.executable, "-c", RUN, how, *flags], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == code, ended.stderr
    assert words in ended.stdout + ended.stderr
    assert ended.stdout.endswith("exit functions ran\n")


def test_a_closed_standard_output_changes_no_exit_code() -> None:
    command = f"exec {shlex.quote(sys.executable)} -m trainer --epochs none >&-"
    ended = subprocess.run(["/bin/sh", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr.count("argument --epochs")) == (2, 1)
