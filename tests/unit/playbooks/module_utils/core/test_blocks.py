"""Blocks in others' files: whatever a file held, taking the block out gives its bytes back."""

import pytest
from ansible.module_utils.ringmaster.core.blocks import BEGIN, END, block_of, with_block, without_block
from hypothesis import given
from hypothesis import strategies as st

line = st.text(st.characters(exclude_characters="\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", codec="utf-8"), max_size=20)
line = line.filter(lambda one: one.rstrip() not in {BEGIN, END})
texts = st.builds(lambda lines, closed: "\n".join(lines) + closed * "\n", st.lists(line), st.booleans())
blocks = st.builds(lambda lines: "".join(f"{one}\n" for one in lines), st.lists(line))


@given(text=texts, block=blocks, top=st.booleans())
def test_taking_it_out_gives_the_old_bytes(text: str, block: str, top: bool) -> None:
    there = with_block(text, block, top=top)
    assert block_of(there) == block
    assert without_block(there, final_newline=not text or text.endswith("\n")) == text


@given(text=texts, first=blocks, second=blocks, top=st.booleans())
def test_a_new_text_takes_the_place_of_the_old(text: str, first: str, second: str, top: bool) -> None:
    assert with_block(with_block(text, first, top=top), second, top=top) == with_block(text, second, top=top)


def test_what_others_wrote_after_it_stays() -> None:
    there = with_block("theirs", "ours\n", top=False) + "later\n"
    assert without_block(there, final_newline=False) == "theirs\nlater\n"


@pytest.mark.parametrize("text", [f"{BEGIN}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}\n{BEGIN}\n{END}\n"])
def test_a_damaged_block_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="by hand"):
        block_of(text)
