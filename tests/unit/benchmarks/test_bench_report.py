"""The report's table."""

import pytest

from benchmarks import report
from benchmarks.result import Row
from benchmarks.trainings import Node, Training

_CORES = (Node(cores=(0,)), Node(cores=(1,)))
_GPUS = tuple(Node(cores=(number,), gpus=(str(number),)) for number in range(4))


def _training(*accuracies: float, seconds: float = 10.0, rates: tuple[float, ...] = ()) -> Training:
    count = len(accuracies)
    return Training(
        seconds=(seconds,) * count,
        accuracies=accuracies,
        test_losses=tuple(1 - one for one in accuracies),
        epoch_rates=rates,
    )


def test_ways_on_two_cores() -> None:
    found = {way.label: way for way in report.ways(_CORES)}
    assert found[report.DP].lacks == "n/a: no GPU"
    assert found[report.ALONE].nodes == (_CORES[0],)
    assert found[report.DDP_ONE].nodes == (Node(cores=(0, 1), ranks=2),)
    assert found[report.DDP_TWO].nodes == _CORES


def test_ways_on_four_gpus() -> None:
    found = {way.label: way for way in report.ways(_GPUS)}
    assert not any(way.lacks for way in found.values())
    (one_process,) = found[report.DP].nodes
    assert (one_process.ranks, one_process.gpus) == (1, ("0", "1", "2", "3"))
    assert [node.ranks for node in found[report.DDP_TWO].nodes] == [2, 2]


def test_ways_on_one_device_say_what_is_lacking() -> None:
    for only, lacks in ((_CORES[0], "n/a: needs two cores"), (_GPUS[0], "n/a: needs two GPUs")):
        found = {way.label: way.lacks for way in report.ways((only,))}
        assert (found[report.ALONE], found[report.DDP_ONE], found[report.DDP_TWO]) == ("", lacks, lacks)


def test_rows_of_a_way() -> None:
    time, loss, accuracy, speed = report.rows_of("x", [_training(0.8, 0.9, rates=(5.0, 7.0, 9.0)), _training(0.92)])
    assert time.values == (20.0, 10.0)
    assert loss.values == pytest.approx((0.1, 0.08))
    assert accuracy.values == (0.9, 0.92)
    assert speed.values == (8.0,)


def test_rows_of_a_way_that_can_not_be_measured() -> None:
    (row,) = report.rows_of("DataParallel", [], lacks="n/a: no GPU")
    assert (row.values, row.note) == ((), "n/a: no GPU")


def _report_rows(*, theirs: Training | None, two: Training | None = None) -> list[Row]:
    return [
        *report.rows_of(report.THEIRS, [theirs] if theirs else [], lacks="" if theirs else "not in a quick run"),
        *report.rows_of(report.ALONE, [_training(0.9)]),
        *report.rows_of(report.DP, [], lacks="n/a: no GPU"),
        *report.rows_of(report.DDP_ONE, [_training(0.9, seconds=5.0)]),
        *report.rows_of(report.DDP_TWO, [two] if two else [], lacks="" if two else "n/a: needs two cores"),
    ]


def test_each_measured_row_has_its_ratio_to_the_one_before() -> None:
    theirs = _training(0.9, seconds=80.0)
    ratios = report.ratios_of(theirs, _report_rows(theirs=theirs, two=_training(0.9, seconds=4.0)))
    assert [(ratio.label, ratio.value) for ratio in ratios] == [
        (f"{report.THEIRS} / {report.ALONE}", 8.0),
        (f"{report.ALONE} / {report.DDP_ONE}", 2.0),
        (f"{report.DDP_ONE} / {report.DDP_TWO}", 1.25),
        (f"{report.ALONE} / {report.DDP_TWO}", 2.5),
    ]


def test_ratio_to_their_way_is_a_lower_bound_where_it_never_got_there() -> None:
    theirs = _training(0.7, 0.8, seconds=80.0)
    first = report.ratios_of(theirs, _report_rows(theirs=theirs))[0]
    assert first.value == 16.0
    assert "at least" in first.label


def test_a_quick_run_says_nothing_about_their_way() -> None:
    (ratio,) = report.ratios_of(None, _report_rows(theirs=None))
    assert ratio.label == f"{report.ALONE} / {report.DDP_ONE}"
