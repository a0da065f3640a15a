"""Names in braces are filled in; whatever else has braces is kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.base.errors import ExitCode, RingmasterError
from launcher.job.placeholders import NAMES, fill_in, names_in, url

VALUES = {name: f"<{name}>" for name in NAMES}


@pytest.mark.parametrize(
    ("word", "filled"),
    [
        ("{node_rank}", "<node_rank>"),
        ("--rank={node_rank}/{nodes}", "--rank=<node_rank>/<nodes>"),
        ("tcp://{head}:{port}", "tcp://<head>:<port>"),
        ("{init_method}", "<init_method>"),
        ("{DATA_DIR}/a b/{RUN_DIR}{CHECKPOINT_DIR}", "<DATA_DIR>/a b/<RUN_DIR><CHECKPOINT_DIR>"),
        ('{"rank": {node_rank}, "a": {"b": 1}}', '{"rank": <node_rank>, "a": {"b": 1}}'),
        ("[{node_rank},{{node_rank}}]", "[<node_rank>,{node_rank}]"),
        ("{{epoch}}-{{val_loss:.2f}}", "{epoch}-{{val_loss:.2f}}"),
    ],
)
def test_they_are_filled_in_anywhere(word: str, filled: str) -> None:
    names_in([word])
    assert fill_in(word, VALUES) == filled


@pytest.mark.parametrize(
    "word",
    ["{}", "{0}", "{a,b}", "{a: 1}", '{"a":1}', "${x}", "${{x}}", "${node_rank}", "{ node_rank }", "{a.b}", "{", "}{"],
)
def test_what_is_no_name_in_braces_is_kept(word: str) -> None:
    assert names_in([word]) == set()
    assert fill_in(word, VALUES) == word


@given(st.text())
def test_without_braces_every_byte_is_kept(word: str) -> None:
    word = word.replace("{", "")
    assert fill_in(word, VALUES) == word


@pytest.mark.parametrize("word", ["{nodez}", "x{NODE_RANK}", '{"a": {b}}', "{größe}"])
def test_a_name_that_is_none_of_ours_is_refused_with_those_that_are(word: str) -> None:
    with pytest.raises(
        RingmasterError, match=r"no placeholder; there are \{node_rank\}, .*\{CHECKPOINT_DIR\}"
    ) as raised:
        names_in(["{nodes}", word])
    assert raised.value.exit_code == ExitCode.USAGE


def test_an_address_of_version_6_is_put_in_brackets() -> None:
    assert (url("10.0.0.1", 2), url("fd00::1", 2)) == ("tcp://10.0.0.1:2", "tcp://[fd00::1]:2")
