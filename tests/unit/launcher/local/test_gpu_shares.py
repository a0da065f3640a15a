"""The GPUs of one machine, shared out among the nodes on it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.base.errors import ExitCode, RingmasterError
from launcher.local.gpu_shares import share_gpus


@pytest.mark.parametrize(
    ("available", "nodes", "wanted", "shares"),
    [
        ("", 2, "all", [[], []]),
        ("0123", 2, "all", [["0", "1"], ["2", "3"]]),
        ("012", 2, "all", [["0", "1"], ["2"]]),
        ("0", 3, "all", [["0"], ["0"], ["0"]]),
        ("01", 3, "all", [["0"], ["1"], ["0"]]),
        ("0123", 2, "1", [["0"], ["1"]]),
        ("0123", 2, "0", [[], []]),
        ("0123", 2, "3,1", [["3"], ["1"]]),
        ("0123", 1, "2,", [["2"]]),
        ("ab", 1, "b", [["b"]]),
    ],
)
def test_shares(available: str, nodes: int, wanted: str, shares: list[list[str]]) -> None:
    assert [list(share) for share in share_gpus(tuple(available), nodes, wanted)] == shares


@pytest.mark.parametrize("wanted", ["3", "0,4"])
def test_more_gpus_than_there_are_are_refused_before_the_start(wanted: str) -> None:
    with pytest.raises(RingmasterError) as raised:
        share_gpus(("0", "1", "2", "3"), 2, wanted)
    assert raised.value.exit_code == ExitCode.NOT_STARTED


def test_one_named_twice_is_refused() -> None:
    with pytest.raises(RingmasterError, match="twice"):
        share_gpus(("0", "1"), 1, "0,0")


@given(st.integers(0, 40), st.integers(1, 20))
def test_all_are_given_once_and_evenly(count: int, nodes: int) -> None:
    shares = share_gpus(tuple(str(each) for each in range(count)), nodes, "all")
    if count >= nodes:
        assert [device for share in shares for device in share] == [str(each) for each in range(count)]
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
