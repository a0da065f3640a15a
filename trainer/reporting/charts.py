"""Curves and a time line as inline SVG, drawn with the page's own colours (CSS classes s0, s1, …)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise

from trainer.reporting.summary import LARGEST

Point = tuple[float, float]

WIDTH, HEIGHT = 480, 260
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 30, 40
"""User units of the drawings, narrow so that their text stays readable on a phone."""
MOST_POINTS = 500
"""Per line. More can't be told apart on a screen and only make the page large."""

TIME_UNITS = (("seconds", 1.0, 300.0), ("minutes", 60.0, 10800.0), ("hours", 3600.0, math.inf))
"""Name, seconds, and the end in seconds from which the next unit is used."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a chart: points (x, y) by increasing x; `dots` marks each of them."""

    label: str
    points: Sequence[Point]
    color: int
    dots: bool = False


@dataclass(frozen=True, kw_only=True)
class Mark:
    """An event on the time line, `seconds` after the run's start."""

    seconds: float
    event: str
    text: str


def compact(value: float) -> str:
    """Return a number in a few characters: 0.0312, 1.5, 12.5k, 3M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.3g}{unit}"
    return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"


def thin(points: Sequence[Point]) -> list[Point]:
    """Return at most MOST_POINTS points: the lowest and the highest of each stretch, so that no spike is lost."""
    usable = [point for point in points if all(math.isfinite(value) and abs(value) < LARGEST for value in point)]
    if len(usable) <= MOST_POINTS:
        return usable
    stretches = MOST_POINTS // 2
    bounds = [len(usable) * index // stretches for index in range(stretches + 1)]
    kept: list[Point] = []
    for start, end in pairwise(bounds):
        stretch = usable[start:end]
        kept += sorted({min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])})
    return kept


def ticks(low: float, high: float, *, about: int = 5) -> list[float]:
    """Return round numbers (1, 2 or 5 times a power of ten apart) from at or below `low` to at or above `high`."""
    rough = max(high - low, abs(high) * 1e-6, 1e-12) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [index * step for index in range(first, max(last, first + 1) + 1)]


def chart(title: str, series: Sequence[Series], *, x_end: float, x_label: str, y_label: str, zero: bool = False) -> str:
    """Return a figure with axes, ticks and legend, or one without data.

    x goes from 0 to `x_end`, y from 0 if `zero`, and both as far beyond as the points do, negative ones too.
    """
    drawn = [(line, points) for line in series if (points := thin(line.points))]
    heading = f"<figcaption>{escape(title)}</figcaption>"
    if not drawn:
        return f'<figure>{heading}<p class="none">no data</p></figure>'
    xs = [x for _, points in drawn for x, _ in points]
    ys = [y for _, points in drawn for _, y in points] + [0.0] * zero
    x_low, x_high = min(0.0, *xs), max(*xs, x_end if abs(x_end) < LARGEST else xs[0])
    x_high += (0.02 * abs(x_high) or 1.0) if x_high <= x_low else 0.0
    margin = 0.0 if max(ys) - min(ys) > 0.01 * abs(max(ys)) else 0.02 * abs(max(ys)) or 1.0  # a constant: centred
    x_ticks, y_ticks = ticks(x_low, x_high), ticks(min(ys) - margin, max(ys) + margin)

    def place(x: float, y: float) -> Point:
        across = (x - x_low) / (x_high - x_low)
        up = (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    parts = [_text(LEFT - 8, TOP - 14, y_label, "end" if len(y_label) < 7 else "middle", "unit")]
    for y in y_ticks:
        _, down = place(0, y)
        parts.append(f'<path class="grid" d="M{LEFT} {down:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(_text(LEFT - 8, down + 4, compact(y), "end"))
    for x in (x for x in x_ticks if x_low <= x <= x_high):
        across, _ = place(x, y_ticks[0])
        parts.append(f'<path class="axis" d="M{across:.1f} {HEIGHT - BOTTOM}v5"/>')
        parts.append(_text(across, HEIGHT - BOTTOM + 18, compact(x), "middle"))
    parts.append(f'<path class="axis" d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>')
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5, x_label, "middle", "unit"))
    for line, points in drawn:
        parts += _line(line, [place(x, y) for x, y in points], points)
    legend = "".join(f'<span class="s{line.color}">{escape(line.label)}</span>' for line, _ in drawn)
    return f'<figure>{heading}<div class="legend">{legend}</div>{_svg(title, HEIGHT, parts)}</figure>'


def _line(line: Series, places: list[Point], points: list[Point]) -> Iterable[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    if len(places) > 1:
        yield f'<polyline class="line s{line.color}" points="{path}"/>'
    if line.dots or len(places) == 1:
        for (across, down), (x, y) in zip(places, points, strict=True):
            tip = escape(f"{line.label}: {compact(y)} at {compact(x)}")
            spot = f'cx="{across:.1f}" cy="{down:.1f}" r="3.5"'
            yield f'<circle class="dot s{line.color}" {spot}><title>{tip}</title></circle>'


def timeline(marks: Sequence[Mark], *, end: float, kinds: Sequence[str]) -> str:
    """Return the run from left to right, `end` seconds or more: a row per kind that happened, a dot per mark."""
    marks = [replace(mark, seconds=_moment(mark.seconds)) for mark in marks]
    rows = [kind for kind in kinds if any(mark.event == kind for mark in marks)]
    end = max([_moment(end), *(mark.seconds for mark in marks)])
    end = end if end > 1e-6 else 1.0  # all at the start
    unit, unit_s = next((name, size) for name, size, limit in TIME_UNITS if end < limit)
    left, row_height, top = 90, 24, 10
    floor = top + row_height * len(rows)
    scale = (WIDTH - left - RIGHT) / end
    parts = [f'<path class="axis" d="M{left} {floor}H{WIDTH - RIGHT}"/>']
    for index, kind in enumerate(rows):
        down = top + row_height * (index + 0.5)
        parts.append(_text(left - 12, down + 4, kind, "end"))
        parts.append(f'<path class="grid" d="M{left} {down:.1f}H{WIDTH - RIGHT}"/>')
        for mark in (mark for mark in marks if mark.event == kind):
            spot = f'cx="{left + mark.seconds * scale:.1f}" cy="{down:.1f}" r="5"'
            parts.append(f'<circle class="dot e-{kind}" {spot}><title>{escape(mark.text)}</title></circle>')
    for tick in (tick for tick in ticks(0, end / unit_s) if tick <= end / unit_s):
        across = left + tick * unit_s * scale
        parts.append(f'<path class="axis" d="M{across:.1f} {floor}v5"/>')
        parts.append(_text(across, floor + 18, compact(tick), "middle"))
    parts.append(
        _text((left + WIDTH - RIGHT) / 2, floor + BOTTOM - 5, f"{unit} since the trainer's start", "middle", "unit")
    )
    return _svg("Time line", floor + BOTTOM, parts)


def _moment(seconds: float) -> float:
    """Return the seconds; 0 where they are before the start, or garbage."""
    return seconds if 0 <= seconds < LARGEST else 0.0


def _text(x: float, y: float, words: str, anchor: str, kind: str = "tick") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _svg(label: str, height: float, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
