"""Words of other machines don't steer the operator's terminal, wherever they are shown."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.base.node_table import Row, lines
from launcher.base.terminal import in_one_line, visible

STEERING = st.text(alphabet="\x1b\x9b\x90\x9d[]0;31mHJ\x07\\PHaé\r\n\t\x7f\x00") | st.text()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("schön 训练 ✓", "schön 训练 ✓"),
        ("two\nlines\tof it", "two\nlines\tof it"),
        ("Permission denied.\r\n", "Permission denied.\n"),
        ("\x1b[1;31mred\x1b[0m and not", "red and not"),
        ("\x9b31mred", "red"),
        ("a\x1b[2J\x1b[3;4Hb", r"a\x1b[2J\x1b[3;4Hb"),
        ("\x1b]0;title\x07a", r"\x1b]0;title\x07a"),
        ("\x1b]52;c;aGk=\x1b\\a", r"\x1b]52;c;aGk=\x1b\a"),
        ("\x1bPdevice\x1b\\", r"\x1bPdevice\x1b" + "\\"),
        ("50 %\r99 %\x08\x7f\x00", r"50 %\r99 %\x08\x7f\x00"),
        ("\x9b2J\x9d0;title\x9c", r"\x9b2J\x9d0;title\x9c"),
        ("\x1b[3\x1b[0m1m", r"\x1b[31m"),
        ("a file \udcff", "a file \udcff"),  # a name that is no text, shown byte for byte
    ],
)
def test_controls_are_shown_and_colours_are_dropped(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(STEERING)
def test_no_control_character_is_left(text: str) -> None:
    shown = visible(text)
    assert {each for each in shown if unicodedata.category(each) == "Cc"} <= {"\n", "\t"}
    assert visible(shown) == shown
    assert "\n" not in in_one_line(text)


@given(st.text(alphabet=st.characters(exclude_categories=["Cc"])))
def test_words_without_controls_stay_as_they_are(text: str) -> None:
    assert visible(text) == in_one_line(text) == text


@given(STEERING, STEERING, STEERING, STEERING)
def test_a_row_of_the_table_of_nodes_stays_one(name: str, address: str, state: str, why: str) -> None:
    table = lines([Row(name=name, address=address, state=state, why=why), Row(name="b", address="c", state="ok")])
    assert len(table) == 2
    assert not [each for line in table for each in line if unicodedata.category(each) == "Cc" and each != "\t"]
