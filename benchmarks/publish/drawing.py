"""Charts as SVG files of their own, on a light card, so that they read alike on white and on dark pages."""

import math
from collections.abc import Iterable, Sequence
from html import escape

from benchmarks.result import Chart, Curve
from trainer.reporting.charts import Point, compact, ticks

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, BOTTOM, TITLE = 76, 24, 52, 34
"""User units: margins around the plot, and the height of the title's line."""
LEGEND_ROW, LETTER = 20, 6.7
"""Height of a row of the legend, and the mean width of a letter of 12 units."""
MOST_TICKS = 9
COLOURS = ("#2166c4", "#c8590a", "#1a7f37", "#8a3ffc", "#c02626", "#5d6673", "#0f8b8d", "#8a6100")
STYLE = (
    "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:#4a525c}"
    ".title{font-size:15px;font-weight:600;fill:#1b1f24}.grid{stroke:#e4e8ec;fill:none}.axis{stroke:#8b949e;fill:none}"
    ".line{fill:none;stroke-width:2;stroke-linejoin:round}"
)


def draw(chart: Chart) -> str:
    """Return the chart as an SVG document.

    Raises:
        ValueError: no curve has a point, or a point is at or left of 0 on a logarithmic axis.
    """
    xs = sorted({x for curve in chart.curves for x, _ in curve.points})
    ys = [y for curve in chart.curves for _, y in curve.points]
    if not xs or (chart.logarithmic and xs[0] <= 0):
        raise ValueError(f"chart {chart.name}: no points, or x of 0 or less on a logarithmic axis")
    legend, top = _legend(chart.curves)
    x_ticks, y_ticks = _x_ticks(xs, chart.logarithmic), _y_ticks(ys)
    left, right = (_along(x, chart.logarithmic) for x in (min(x_ticks[0], xs[0]), max(x_ticks[-1], xs[-1])))

    def place(x: float, y: float) -> Point:
        across = (_along(x, chart.logarithmic) - left) / ((right - left) or 1)
        up = (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - top - BOTTOM)

    parts = [_text(LEFT, 24, chart.title, "start", "title"), *legend]
    for y in y_ticks:
        down = place(xs[0], y)[1]
        parts.append(f'<path class="grid" d="M{LEFT} {down:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(_text(LEFT - 8, down + 4, compact(y), "end"))
    for x in x_ticks:
        across = place(x, y_ticks[0])[0]
        parts.append(f'<path class="axis" d="M{across:.1f} {HEIGHT - BOTTOM}v5"/>')
        parts.append(_text(across, HEIGHT - BOTTOM + 18, compact(x), "middle"))
    parts.append(f'<path class="axis" d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>')
    middle = (top + HEIGHT - BOTTOM) / 2
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, chart.x, "middle"))
    parts.append(f'<g transform="translate(18 {middle:.1f}) rotate(-90)">{_text(0, 0, chart.y, "middle")}</g>')
    for number, curve in enumerate(chart.curves):
        parts += _curve(curve, [place(x, y) for x, y in curve.points], COLOURS[number % len(COLOURS)])
    return _document(chart.title, parts)


def _along(x: float, logarithmic: bool) -> float:
    return math.log2(x) if logarithmic else x


def _x_ticks(xs: Sequence[float], logarithmic: bool) -> list[float]:
    if len(xs) <= MOST_TICKS and (logarithmic or all(x == int(x) and x < MOST_TICKS for x in xs)):
        return list(xs)  # counts and doublings: the measured places themselves
    if not logarithmic:
        return ticks(min(0.0, xs[0]), xs[-1])
    first, last = math.floor(math.log2(xs[0])), math.ceil(math.log2(xs[-1]))
    step = math.ceil((last - first + 1) / MOST_TICKS)
    return [2.0**power for power in range(first, last + 1, step)]


def _y_ticks(ys: Sequence[float]) -> list[float]:
    """Return ticks from 0, except if all values are so close together that they would look the same."""
    low, high = min(ys), max(ys)
    close = low > 0.5 * high > 0
    margin = (high - low) * 0.05 or abs(high) * 0.02 or 1.0
    return ticks(low - margin if close else min(low, 0.0), high + margin * close)


def _legend(curves: Sequence[Curve]) -> tuple[list[str], float]:
    """Return the legend's parts, in as many rows as it needs, and where the plot begins below it."""
    parts: list[str] = []
    across, down = float(LEFT), float(TITLE + LEGEND_ROW / 2 + 4)
    for number, curve in enumerate(curves):
        wide = 40 + LETTER * len(curve.label)
        if across > LEFT and across + wide > WIDTH - RIGHT:
            across, down = float(LEFT), down + LEGEND_ROW
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<path class="line" stroke="{colour}" d="M{across:.1f} {down - 4:.1f}h18"/>')
        parts.append(_text(across + 24, down, curve.label, "start"))
        across += wide
    return parts, down + 20


def _curve(curve: Curve, places: Sequence[Point], colour: str) -> Iterable[str]:
    path = " ".join(f"{across:.1f},{down:.1f}" for across, down in places)
    if len(places) > 1:
        yield f'<polyline class="line" stroke="{colour}" points="{path}"/>'
    for (across, down), (x, y) in zip(places, curve.points, strict=True):
        tip = escape(f"{curve.label}: {compact(y)} at {compact(x)}")
        yield f'<circle fill="{colour}" cx="{across:.1f}" cy="{down:.1f}" r="3.5"><title>{tip}</title></circle>'


def _text(x: float, y: float, words: str, anchor: str, kind: str = "") -> str:
    chosen = f' class="{kind}"' if kind else ""
    return f'<text{chosen} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _document(label: str, parts: Sequence[str]) -> str:
    card = f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8" fill="#fff" stroke="#d0d7de"/>'
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(label)}">'
    return "\n".join([head, f"<style>{STYLE}</style>", card, *parts, "</svg>"]) + "\n"
