"""A result's rows as text: for the terminal, and as Markdown for the page."""

import textwrap
from collections.abc import Sequence

from benchmarks.result import Ratio, Result, Row, figure

DASH = "–"  # noqa: RUF001  (an en dash is meant)
_WIDTH = 110
"""The width of sentences on a terminal."""


def cells(row: Row) -> tuple[str, str, str, str, str]:
    """Return label, unit, n, median and range of a row; dashes and the note if nothing was measured."""
    if not row.values:
        return row.label, row.unit, DASH, DASH, row.note or "not measured"
    low, high = row.spread
    spread = f"{figure(low, like=row.median)} to {figure(high, like=row.median)}"
    note = f"; {row.note}" if row.note else ""
    return row.label, row.unit, str(row.n), figure(row.median), spread + note


def ratio_line(ratio: Ratio) -> str:
    """Return label, value, what was promised, and whether that was kept."""
    value = DASH if ratio.value is None else figure(ratio.value)
    promised = ": ".join(filter(None, (ratio.limit, ratio.verdict)))
    return f"{ratio.label}: {value}" + (f" ({promised})" if promised else "")


def terminal(result: Result) -> str:
    """Return the table as plain aligned text."""
    body = [cells(row) for row in result.rows]
    table = [("", "", "n", "median", "range"), *body]
    widths = [max(len(line[column]) for line in table) for column in range(5)]
    lines = [result.title]
    for line in table:
        label, unit, count, median, spread = (
            _fill(text, width, right=column in (2, 3))
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        lines.append(f"  {label}  {unit}  {count}  {median}  {spread}".rstrip())
    lines += [f"  {ratio_line(ratio)}" for ratio in result.ratios]
    lines += [textwrap.fill(note, _WIDTH, initial_indent="  ", subsequent_indent="  ") for note in result.notes]
    return "\n".join(lines)


def markdown(result: Result) -> str:
    """Return the table, ratios and notes for a page."""
    lines = ["| | unit | n | median | range |", "|---|---|---:|---:|---|"]
    lines += [f"| {' | '.join(_escaped(cells(row)))} |" for row in result.rows]
    if result.ratios:
        lines += ["", "| ratio of medians | | promised | |", "|---|---:|---|---|"]
    for ratio in result.ratios:
        value = DASH if ratio.value is None else figure(ratio.value)
        lines.append(f"| {' | '.join(_escaped((ratio.label, value, ratio.limit, ratio.verdict)))} |")
    if result.notes:
        lines += ["", *(f"- {note}" for note in result.notes)]
    return "\n".join(lines)


def _escaped(texts: Sequence[str]) -> list[str]:
    return [text.replace("|", "\\|") for text in texts]


def _fill(text: str, width: int, *, right: bool) -> str:
    gap = " " * (width - len(text))
    return gap + text if right else text + gap
