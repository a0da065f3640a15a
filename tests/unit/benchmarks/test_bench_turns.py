"""Ways measured in turn: how often, and what one that fails does to the others."""

from collections.abc import Callable, Iterator

import pytest

from benchmarks.turns import in_turn
from launcher.base.errors import StoppedError


def counting() -> Callable[[], float]:
    values: Iterator[int] = iter(range(9))
    return lambda: float(next(values))


def failing(error: Exception, *, after: int = 0) -> Callable[[], float]:
    calls = iter(range(9))

    def measure() -> float:
        if next(calls) >= after:
            raise error
        return 1.0

    return measure


def test_each_way_is_measured_in_every_round_or_in_fewer() -> None:
    values = in_turn({"a": counting(), "b": counting()}, 3, unit="s", fewer={"b": 1})
    assert values == {"a": (0.0, 1.0, 2.0), "b": (0.0,)}


def test_an_optional_way_that_fails_has_no_values_and_the_others_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    ways = {"new": failing(ValueError("no room"), after=1), "old": counting()}
    assert in_turn(ways, 3, unit="s", optional=("new",)) == {"new": (), "old": (0.0, 1.0, 2.0)}
    assert capsys.readouterr().out.count("new failed: no room") == 1


@pytest.mark.parametrize(("error", "optional"), [(ValueError(), ()), (StoppedError(), ("new",))])
def test_other_failures_end_it(error: Exception, optional: tuple[str, ...]) -> None:
    with pytest.raises(type(error)):
        in_turn({"new": failing(error)}, 2, unit="s", optional=optional)
