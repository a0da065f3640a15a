"""What a measurement found, in a form that tables, charts and JSON are made from."""

import math
import statistics
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Row:
    """One quantity, measured n times."""

    label: str
    unit: str
    """Such as "s" or "images/s"; empty for plain numbers."""
    values: tuple[float, ...]
    """In the order of measurement; empty where it could not be measured, and `note` says why ("n/a: no GPU")."""
    note: str = ""

    @property
    def n(self) -> int:
        """Return how often it was measured."""
        return len(self.values)

    @property
    def median(self) -> float:
        """Return the median of the values.

        Raises:
            ValueError: there are none (statistics.StatisticsError).
        """
        return statistics.median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        """Return the smallest and the largest value.

        Raises:
            ValueError: there are none.
        """
        return min(self.values), max(self.values)


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """What a measurement is about, most often one row's median over another's."""

    label: str
    value: float | None
    """None: one of the two could not be measured."""
    least: float | None = None
    """What was promised; None: nothing."""
    most: float | None = None

    @property
    def limit(self) -> str:
        """Return what was promised, in words: "at least 2"; empty if nothing was."""
        bounds = (("at least", self.least), ("at most", self.most))
        return " and ".join(f"{words} {bound:,g}" for words, bound in bounds if bound is not None)

    @property
    def kept(self) -> bool | None:
        """Return whether the promise was kept; None if there is none, or no value."""
        if self.value is None or not self.limit:
            return None
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)

    @property
    def verdict(self) -> str:
        """Return one word: kept, MISSED, or nothing."""
        return "" if self.kept is None else "kept" if self.kept else "MISSED"


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One line of a chart."""

    label: str
    points: tuple[tuple[float, float], ...]
    """(x, y) by rising x."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Curves in one coordinate system."""

    name: str
    """Of its file, without the ending: docs/performance/<name>.svg."""
    title: str
    x: str
    y: str
    """Words at the axes, with units."""
    curves: tuple[Curve, ...]
    logarithmic: bool = False
    """The horizontal axis counts doublings."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One measurement's findings."""

    name: str
    """As in `make bench ONLY=<name>`."""
    title: str
    command: str
    """What a reader types to measure again."""
    rows: tuple[Row, ...]
    ratios: tuple[Ratio, ...] = ()
    charts: tuple[Chart, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences below the table: what is left out, how often rounds were repeated."""

    @property
    def measured(self) -> bool:
        """Return whether any row has a value."""
        return any(row.values for row in self.rows)

    @property
    def missed(self) -> tuple[Ratio, ...]:
        """Return the ratios whose promise was not kept."""
        return tuple(ratio for ratio in self.ratios if ratio.kept is False)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for json.dumps."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Result":
        """Return the inverse of `to_json`, also after a trip through a file.

        Raises:
            KeyError, TypeError: the value is something else.
        """
        charts = (
            Chart(**{**chart, "curves": tuple(_curve(curve) for curve in chart["curves"])}) for chart in value["charts"]
        )
        return cls(
            name=value["name"],
            title=value["title"],
            command=value["command"],
            rows=tuple(Row(**{**row, "values": tuple(row["values"])}) for row in value["rows"]),
            ratios=tuple(Ratio(**ratio) for ratio in value["ratios"]),
            charts=tuple(charts),
            notes=tuple(value["notes"]),
        )


def _curve(value: dict[str, Any]) -> Curve:
    return Curve(label=value["label"], points=tuple((x, y) for x, y in value["points"]))


def ratio(label: str, above: Row, below: Row, *, least: float | None = None, most: float | None = None) -> Ratio:
    """Return the ratio of two rows' medians; its value is None if one of them was not measured."""
    value = above.median / below.median if above.values and below.values else None
    return Ratio(label=label, value=value, least=least, most=most)


def figure(value: float, *, like: float | None = None) -> str:
    """Return a number as tables show it: 0.9158, 3.17, 92.5, 13,530; with `like`, with the decimals of that number."""
    size = abs(value if like is None else like)
    if float(value).is_integer() and (like is None or float(like).is_integer()):
        decimals = 0
    elif size >= 0.1:
        decimals = next(count for least, count in ((100, 0), (10, 1), (1, 2), (0.1, 4)) if size >= least)
    else:
        decimals = 2 - math.floor(math.log10(size or 1))
    return f"{value:,.{decimals}f}"
