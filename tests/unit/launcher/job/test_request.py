"""A user's request, checked for form."""

import pytest

from launcher.base.errors import RingmasterError
from launcher.commands.options import parse_gpus, parse_nodes, parse_ranks
from launcher.job.request import choose_nodes


@pytest.mark.parametrize("text", ["0", "-1", "abc", "1.5", "2 ", "٣", "99999999999"])
def test_bad_node_counts(text: str) -> None:
    with pytest.raises(RingmasterError, match="NODES"):
        parse_nodes(text)


@pytest.mark.parametrize("text", ["0", "-1", "all", "1.5", "99999"])
def test_bad_rank_counts(text: str) -> None:
    with pytest.raises(RingmasterError, match="RANKS"):
        parse_ranks(text)


@pytest.mark.parametrize("text", ["-1", "a b", "0,,1", "1.5", ";"])
def test_bad_gpus(text: str) -> None:
    with pytest.raises(RingmasterError, match="GPUS"):
        parse_gpus(text)


def test_default_nodes_are_two_or_all_there_are() -> None:
    assert len(choose_nodes([1, 2, 3], None)) == 2
    assert len(choose_nodes([1], None)) == 1


def test_more_nodes_than_there_are() -> None:
    with pytest.raises(RingmasterError, match="ask for 1 to 3"):
        choose_nodes([1, 2, 3], 4)
