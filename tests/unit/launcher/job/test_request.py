"""A user's request, checked for form."""

import pytest

from launcher.base.errors import RingmasterError
from launcher.job.request import choose_nodes


def test_default_nodes_are_two_or_all_there_are() -> None:
    assert len(choose_nodes([1, 2, 3], None)) == 2
    assert len(choose_nodes([1], None)) == 1


def test_more_nodes_than_there_are() -> None:
    with pytest.raises(RingmasterError, match="ask for 1 to 3"):
        choose_nodes([1, 2, 3], 4)
