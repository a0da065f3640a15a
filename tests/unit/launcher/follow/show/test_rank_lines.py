"""A rank's lines on a terminal: its own colours stay, whatever else steers a terminal goes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.follow.show.rank_lines import as_printed, for_a_terminal, harmless


def test_off_a_terminal_bytes_are_kept() -> None:
    assert as_printed("node1:0", [b"a\x1b[2J", b"", b"\xff\r"]) == b"node1:0 | a\x1b[2J\nnode1:0 | \nnode1:0 | \xff\r\n"


def test_plain_lines_get_a_coloured_label() -> None:
    assert for_a_terminal("n:0", [b"a\tb", b""], 36) == b"\x1b[36mn:0 | \x1b[0ma\tb\n\x1b[36mn:0 | \x1b[0m\n"
    assert for_a_terminal("n:0", [b"a", b"\x1b[31mred"], None) == b"n:0 | a\nn:0 | red\n"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("schön 训练 ✓".encode(), "schön 训练 ✓"),
        (b"\x1b[1;31mred\x1b[0m and not", "\x1b[1;31mred\x1b[0m and not\x1b[0m"),
        (b"\x1b[38:5:9mred", "\x1b[38:5:9mred\x1b[0m"),
        (b"a\x1b[2J\x1b[3;4Hb\x1b[?25lc\x1b[K", "abc"),
        (b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", "ab"),
        (b"\x1b]0;never ended", ""),
        (b"\x1bPdevice\x1b\\a\x1b(Bb\x1b7c", "abc"),
        (b"a\rb\x08c\x07\x00\x7f", "abc"),
        ("a\x9b2Jb\x9d0;title\x9cc\x85".encode(), "abc"),
        (b"\xff\x9b2J", "\ufffd\ufffd2J"),
        (b"cut \x1b[31", "cut 31"),
        (b"cut \x1b", "cut "),
    ],
)
def test_what_steers_a_terminal_is_dropped(line: bytes, shown: str) -> None:
    assert harmless(line, colours=True).decode() == shown


@given(st.binary() | st.text(alphabet="\x1b\x9b[]0;m\x07\\PHaé\r\t").map(str.encode))
def test_no_control_character_is_left(line: bytes) -> None:
    line = line.replace(b"\n", b"")
    shown = harmless(line, colours=False).decode()
    assert not [each for each in shown if each != "\t" and (each < " " or "\x7f" <= each <= "\x9f")]
    coloured = harmless(line, colours=True).decode().split("\x1b[")
    assert all("\x1b" not in part for part in coloured)
    assert coloured[-1] in ("0m", coloured[0]), "its colours end with it"
