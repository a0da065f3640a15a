"""Which fixed numbers of workers are swept."""

import pytest

from benchmarks.stream import sweep


@pytest.mark.parametrize(
    ("cores", "numbers"),
    [
        (1, (0, 1, 2, 3, 4)), (2, (0, 1, 2, 3, 4)), (4, (0, 1, 2, 3, 4, 8)), (6, (0, 1, 2, 3, 4, 6, 8, 12)),
        (16, (0, 1, 2, 3, 4, 8, 16, 32)), (96, (0, 1, 2, 3, 4, 8, 16, 32, 64)),
    ],
)  # fmt: skip
def test_few_are_all_tried_and_many_by_doubling(cores: int, numbers: tuple[int, ...]) -> None:
    assert sweep(cores) == numbers


def test_a_quick_one_tries_three_at_most() -> None:
    assert [sweep(cores, quick=True) for cores in (1, 2, 96)] == [(0, 1, 2), (0, 2, 4), (0, 64)]
