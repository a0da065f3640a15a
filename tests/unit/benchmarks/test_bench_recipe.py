"""The recipe's table."""

import pytest

from benchmarks import recipe
from benchmarks.result import Row
from benchmarks.trainings import Training


def _training(*accuracies: float, seconds: float = 10.0) -> Training:
    count = len(accuracies)
    return Training(seconds=(seconds,) * count, accuracies=accuracies, test_losses=tuple(1 - one for one in accuracies))


def test_time_row_of_seeds_that_all_got_there() -> None:
    row = recipe.time_row("to 90 %", [_training(0.8, 0.9), _training(0.95)], 0.9)
    assert row == Row(label="to 90 %", unit="s", values=(20.0, 10.0))


def test_time_row_says_how_many_did_not_get_there() -> None:
    row = recipe.time_row("to 90 %", [_training(0.8, 0.85), _training(0.95)], 0.9)
    assert (row.values, row.note) == ((10.0,), "1 of 2 did not get there")


def test_time_row_of_none_gives_the_time_that_was_not_enough() -> None:
    row = recipe.time_row("to 90 %", [_training(0.8, 0.85)], 0.9)
    assert (row.values, row.note) == ((), "> 20 s: not reached in 2 epoch(s)")


def test_promises_are_means_over_seeds() -> None:
    good, better, accuracy = recipe.promises([_training(0.9, 0.93), _training(0.8, 0.95)])
    assert (good.value, better.value) == (15.0, 20.0)
    assert accuracy.value == pytest.approx(0.94)


def test_a_promise_is_not_kept_by_the_seeds_that_got_there_alone() -> None:
    good, better, _ = recipe.promises([_training(0.9), _training(0.93)])
    assert good.value == 10.0
    assert better.value is None


def test_against_a_naive_loop_that_got_there() -> None:
    ratio = recipe.against_naive([_training(0.9)], _training(0.5, 0.8, 0.9, seconds=100.0))
    assert ratio.value == 30.0
    assert "at least this many" not in ratio.label


def test_against_a_naive_loop_that_never_got_there_is_a_lower_bound() -> None:
    ratio = recipe.against_naive([_training(0.9)], _training(0.5, 0.8, seconds=100.0))
    assert ratio.value == 20.0
    assert "at least this many times" in ratio.label


def test_without_a_naive_loop_there_is_no_figure() -> None:
    assert recipe.against_naive([_training(0.9)], None).value is None
    (row,) = recipe.naive_rows(None)
    assert (row.values, row.note) == ((), "not in a quick run")


def test_a_curve_is_of_means_over_the_epochs_that_all_have() -> None:
    curve = recipe.mean_curve("x", [_training(0.8, 0.9, 0.95), _training(0.6, 0.7, seconds=30.0)])
    assert curve.points == (pytest.approx((20.0, 0.7)), pytest.approx((40.0, 0.8)))
