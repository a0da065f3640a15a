"""What is shown while a build is silent: how much it has put on the disk, and nothing where that is not known."""

import pytest

from launcher.base.errors import RingmasterError
from launcher.image.builder import _Shown
from launcher.image.buildkit_output import Steps


@pytest.mark.parametrize(
    ("free", "says"),
    [([50.0, 47.9], ", 2.1 GB of disk taken"), ([50.0, 51.0], ""), ([None, 47.9], ""), ([50.0, None], "")],
)
def test_bytes_not_only_seconds(free: list[float | None], says: str) -> None:
    asked = iter(free)
    shown = _Shown(Steps(), lambda: next(asked))
    assert shown._written() == says
    shown.close()


def test_a_node_that_does_not_answer_meanwhile_is_no_reason_to_stop() -> None:
    def ask() -> float:
        raise RingmasterError("node1: the connection is lost")

    shown = _Shown(Steps(), ask)
    assert shown._written() == ""
    shown.close()
