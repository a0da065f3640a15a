"""The README's results: a few figures, each drawn from the JSON of the run that made it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Never

from benchmarks import sources
from benchmarks.machine import Machine
from benchmarks.result import Ratio, Result, Row, figure
from launcher.base.errors import ExitCode, RingmasterError

BEGIN, END = "<!-- bench:results -->", "<!-- /bench:results -->"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One line of the table: a row or a ratio of a stored result, by its label there."""

    what: str
    result: str
    row: str = ""
    ratio: str = ""


FIGURES = (
    Figure(
        what="Fashion-MNIST to 90 % test accuracy, training time",
        result="recipe",
        row="default recipe, training to 90 %",
    ),
    Figure(what="the same to 92.5 %", result="recipe", row="default recipe, training to 92.5 %"),
    Figure(
        what="the same to 90 % with the tutorials' loop and its usual setting",
        result="recipe",
        row="naive loop, training to 90 %",
    ),
    Figure(
        what="the tutorials' network, same batch and epochs: their loop's time / ours",
        result="step",
        ratio="naive loop / bundled trainer",
    ),
    Figure(what="images per second from memory: ours / PIL one by one", result="input", ratio="resident / naive"),
    Figure(
        what="JPEG decoding: worker count tuned while training / best fixed count",
        result="stream",
        ratio="chosen / best fixed number",
    ),
    Figure(
        what="two nodes of one core / one node, global batch 512",
        result="scaling",
        ratio="two nodes / one node, global batch 512",
    ),
    Figure(
        what="two nodes of one core that exchange nothing / one node",
        result="scaling",
        ratio="two nodes that exchange nothing / one node",
    ),
    Figure(
        what="time to the first optimizer step: `make train` / two bare `torchrun`",
        result="first-step",
        ratio="`make train` / by hand",
    ),
    Figure(
        what="the same on a cluster: `make train` / a shell script with two `ssh`",
        result="launch",
        ratio="make train / shell script",
    ),
    Figure(what="Fashion-MNIST to 94 % on a GPU", result="gpu", row="Fashion-MNIST recipe, training until 94%"),
)
"""In the order of the page."""


def with_results(page: str, stored: Mapping[str, tuple[Result, Machine]], *, where: str) -> str:
    """Return the page with the table between its marks; all else stays byte for byte.

    Raises:
        RingmasterError: a mark is missing or appears twice, or a stored result lacks a figure's row or ratio. `where`
            is the page's name in that message.
    """
    if (page.count(BEGIN), page.count(END)) != (1, 1) or page.index(BEGIN) > page.index(END):
        raise RingmasterError(f"{where}: needs {BEGIN} once, and {END} once after it")
    return page[: page.index(BEGIN) + len(BEGIN)] + f"\n{table(stored)}\n" + page[page.index(END) :]


def table(stored: Mapping[str, tuple[Result, Machine]]) -> str:
    """Return the table as Markdown; a figure whose result was never stored is "not measured yet".

    Raises:
        RingmasterError: a stored result lacks a figure's row or ratio.
    """
    lines = ["| what | measured | command and commit of the run |", "|---|---|---|"]
    for one in FIGURES:
        if one.result not in stored:
            lines.append(f"| {one.what} | not measured yet | `make bench ONLY={one.result}` |")
            continue
        result, machine = stored[one.result]
        lines.append(f"| {one.what} | {_value(one, result)} | `{result.command}`: {origin(result.name, machine)} |")
    return "\n".join(lines)


def origin(name: str, machine: Machine) -> str:
    """Return a result's commit and date, and whether the code that it measures has changed since."""
    return f"commit {machine.commit}, {machine.date}{sources.note(name, machine.code)}"


def _value(one: Figure, result: Result) -> str:
    if one.row:
        return _of_row(next((row for row in result.rows if row.label == one.row), None) or _lacks(one, one.row))
    ratio = next((each for each in result.ratios if each.label == one.ratio), None) or _lacks(one, one.ratio)
    return _of_ratio(ratio)


def _of_row(row: Row) -> str:
    if not row.values:
        return row.note or "not measured yet"
    low, high = (figure(value, like=row.median) for value in row.spread)
    return f"{figure(row.median)} {row.unit} (median; {low} to {high}, n = {row.n})"


def _of_ratio(ratio: Ratio) -> str:
    if ratio.value is None:
        return "not measured yet"
    missed = f" (goal missed: {ratio.limit})" if ratio.kept is False else ""
    return f"{figure(ratio.value)}{missed}"


def _lacks(one: Figure, label: str) -> Never:
    raise RingmasterError(
        f"docs/performance/{one.result}.json has no '{label}', which the README shows; measure again: "
        f"make bench ONLY={one.result}, or change benchmarks/publish/readme.py",
        exit_code=ExitCode.FAILED,
    )
