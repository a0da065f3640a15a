"""Findings survive their trip through a file, and their figures are told as tables need them."""

import json
from dataclasses import replace

import pytest

from benchmarks.result import Ratio, Result, Row, figure, ratio
from tests.support.benchmark_results import WHOLE


def test_a_result_is_the_same_after_its_trip_through_a_file() -> None:
    assert Result.from_json(json.loads(json.dumps(WHOLE.to_json()))) == WHOLE


def test_a_row_knows_count_median_and_spread() -> None:
    row = WHOLE.rows[0]
    assert (row.n, row.median, row.spread) == (3, 2.0, (1.0, 3.0))


def test_a_ratio_is_that_of_the_medians_and_none_without_a_measurement() -> None:
    measured, missing = WHOLE.rows
    other = Row(label="ours", unit="s", values=(0.5, 1.0, 9.0))
    assert ratio("r", measured, other, least=2.0) == Ratio(label="r", value=2.0, least=2.0)
    assert ratio("r", measured, missing).value is None
    assert ratio("r", missing, measured).value is None


@pytest.mark.parametrize(
    ("ratio", "limit", "verdict"),
    [
        (Ratio(label="r", value=2.0, least=2.0), "at least 2", "kept"),
        (Ratio(label="r", value=1.99, least=2.0), "at least 2", "MISSED"),
        (Ratio(label="r", value=1.1, most=1.1), "at most 1.1", "kept"),
        (Ratio(label="r", value=1.11, most=1.1), "at most 1.1", "MISSED"),
        (Ratio(label="r", value=0.0, most=0.02), "at most 0.02", "kept"),
        (Ratio(label="r", value=5.0, least=1.0, most=4.0), "at least 1 and at most 4", "MISSED"),
        (Ratio(label="r", value=None, least=3000.0), "at least 3,000", ""),
        (Ratio(label="r", value=2.0), "", ""),
    ],
)
def test_a_promise_is_kept_or_missed_or_open(ratio: Ratio, limit: str, verdict: str) -> None:
    assert (ratio.limit, ratio.verdict) == (limit, verdict)


def test_a_result_tells_which_promises_it_missed_and_whether_it_has_values() -> None:
    slow = Ratio(label="slow", value=1.5, least=2.0)
    assert replace(WHOLE, ratios=(*WHOLE.ratios, slow)).missed == (slow,)
    assert WHOLE.missed == ()
    assert WHOLE.measured
    assert not replace(WHOLE, rows=WHOLE.rows[1:]).measured


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (5, "5"), (0.9158, "0.9158"), (0.5, "0.5000"), (0.00123, "0.00123"), (0.0312, "0.0312"),
        (3.14159, "3.14"), (8.3, "8.30"), (92.53, "92.5"), (13530.4, "13,530"), (-2.5, "-2.50"),
    ],
)  # fmt: skip
def test_figures_have_the_digits_that_mean_something(value: float, text: str) -> None:
    assert figure(value) == text


def test_the_ends_of_a_range_are_told_like_its_median() -> None:
    assert [figure(value, like=8.37) for value in (0.99123, 7.851, 10)] == ["0.99", "7.85", "10.00"]
