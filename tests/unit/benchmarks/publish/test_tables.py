"""Every row shows n, median and spread, or why there are none."""

from benchmarks.publish import tables
from tests.support.benchmark_results import WHOLE


def test_the_terminal_gets_an_aligned_table() -> None:
    assert tables.terminal(WHOLE).splitlines() == [
        "A step",
        "            n  median  range",
        "  naive  s  3       2  1 to 3",
        "  dp     s  –       –  n/a: no GPU",  # noqa: RUF001
        "  naive / ours: 2.50 (at least 2: kept)",
        "  dp / ours: –",  # noqa: RUF001
        "  One process.",
    ]


def test_the_page_gets_markdown() -> None:
    assert tables.markdown(WHOLE).splitlines() == [
        "| | unit | n | median | range |",
        "|---|---|---:|---:|---|",
        "| naive | s | 3 | 2 | 1 to 3 |",
        "| dp | s | – | – | n/a: no GPU |",  # noqa: RUF001
        "",
        "| ratio of medians | | promised | |",
        "|---|---:|---|---|",
        "| naive / ours | 2.50 | at least 2 | kept |",
        "| dp / ours | – |  |  |",  # noqa: RUF001
        "",
        "- One process.",
    ]


def test_a_bar_in_a_label_ends_no_cell() -> None:
    from benchmarks.result import Result, Row

    row = Row(label="save | load", unit="s", values=(1.5,), note="once")
    result = Result(name="x", title="X", command="x", rows=(row,))
    assert tables.markdown(result).splitlines()[-1] == "| save \\| load | s | 1 | 1.50 | 1.50 to 1.50; once |"
