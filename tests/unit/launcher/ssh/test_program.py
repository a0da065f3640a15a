"""A program's words arrive as they are, whatever the login shell is and whatever is in them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from launcher.base.paths import ROOT
from launcher.ssh.program import command_line

SHELLS = ("sh", "bash", "dash", "csh", "bsd-csh", "tcsh", "fish", "zsh", "ksh")
HERE = [shell for shell in SHELLS if shutil.which(shell)]
words = st.lists(
    st.binary(max_size=40).filter(lambda word: 0 not in word).map(lambda word: word.decode(errors="surrogateescape"))
    | st.text(st.sampled_from("!\\'\"`$&;|<>()*?[]{}#~^=% \t\n\r-aé"), max_size=40),
    max_size=6,
)


def received(shell: str, command: str) -> list[bytes]:
    done = subprocess.run([shell, "-c", command], capture_output=True, check=True, stdin=subprocess.DEVNULL)
    assert done.stderr == b""
    return done.stdout.split(b"\0")[:-1]


@pytest.mark.parametrize("shell", HERE)
@given(words=words)
@example(words=["!!", "!$", "a!b", "\\!", "!", "it's", "\n", "a\nb\n", "", "-n", "\\\\", "$(id)", "`id`", "%s", "~"])
def test_words_arrive_as_they_are(shell: str, words: list[str]) -> None:
    sent = [word.encode(errors="surrogateescape") for word in words]
    assert received(shell, command_line(["printf", "%s\\0", "x", *words])) == [b"x", *sent]


@pytest.mark.parametrize("shell", HERE)
def test_long_words_too(shell: str) -> None:
    """Our longest are programs of 20 KB; the oldest csh reads no word above 1,000 characters."""
    long = "it's long\n" * 3000
    command = command_line(["printf", "%s\\0", long])
    assert max(map(len, command.split(" "))) < 1000
    assert received(shell, command) == [long.encode()]


@given(words=words)
def test_the_login_shell_sees_nothing_of_them(words: list[str]) -> None:
    """One fixed text, which all shells read alike between single quotes, and letters that mean nothing to any."""
    command = command_line(["x", *words])
    fixed, _, rest = command.removeprefix("exec /bin/sh -c '").partition("' sh ")
    assert fixed == 'w=$(printf %s "$@" | base64 -d) && eval "exec $w"'
    assert not set(fixed) & set("!'\\\n\r`")
    assert re.fullmatch(r"[A-Za-z0-9+/= ]+", rest)


def test_standard_input_and_exit_code_are_the_programs() -> None:
    command = command_line(["sh", "-c", "cat; exit 7"])
    done = subprocess.run(["/bin/sh", "-c", command], input=b"for it", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (7, b"for it")
    assert subprocess.run(["/bin/sh", "-c", command_line(["no-such-program"])], capture_output=True).returncode == 127


def test_without_base64_nothing_runs(tmp_path: Path) -> None:
    command = command_line(["touch", str(tmp_path / "made")])
    done = subprocess.run(["/bin/sh", "-c", command], env={"PATH": str(tmp_path)}, capture_output=True, check=False)
    assert done.returncode == 127 and b"base64" in done.stderr


def test_there_is_no_other_way_to_start_a_program() -> None:
    """No other file of ours asks an SSH server to run something."""
    files = [path for folder in ("launcher", "lab") for path in (ROOT / folder).rglob("*.py")]
    asking = [path.name for path in files if re.search(r"exec_command|invoke_shell|dial-stdio'", path.read_text())]
    assert asking == ["program.py"]
