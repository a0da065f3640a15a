"""The page of a run: whole, self-contained, and safe with anybody's records."""

import math
import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.any_json import DEEP, NUMBERS, RECORDS, VALUES
from trainer.reporting.charts import MOST_POINTS, Mark, Series, chart, compact, thin, ticks, timeline
from trainer.reporting.page import MISSING, duration, render


class Page(HTMLParser):
    """Collects texts and tags; fails on tags that don't match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def _float(value: float) -> float:
    return float(value) if abs(value) < 10**308 else math.inf


def run(steps: int = 100) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = [
        {
            "kind": "event",
            "event": "start",
            "time_s": 0.5,
            "at": 1000.5,
            "dataset": "cifar10",
            "torch": "2.15.0",
            "lr": 0.1,
        }
    ]
    for step in range(1, steps + 1):
        moment = {"time_s": step / 10, "at": 1000 + step / 10}
        records.append({"kind": "step", "step": step, "loss": 2 / step, "images_per_s": 5000.0, **moment})
    records.append({"kind": "epoch", "step": steps, "epoch": 1, "test_loss": 0.3, "test_accuracy": 0.915, **moment})
    records.append({"kind": "event", "event": "checkpoint", "step": steps, "path": "step.pt", **moment})
    return records


SUMMARY = {
    "name": "bright-fox", "state": "succeeded", "exit_code": 0, "nodes": ["node1", "node2"], "world_size": 2,
    "backend": "gloo", "image": None, "started_at": "2026-11-20T05:40:11+00:00", "first_step_s": 3.9, "wall_s": 200.4,
    "restarts": 0, "images_per_s": 9450.2, "test_accuracy": 0.915, "epochs": 1, "checkpoint": "step.pt",
    "failure": None,
}  # fmt: skip


def test_the_page_shows_the_run() -> None:
    page = Page(render(run(), SUMMARY))
    for text in (
        "bright-fox", "succeeded", "node1, node2", "gloo", "3.9 s", "3 min 20 s", "9,450", "91.50%", "2.15.0",
        "cifar10", "step 100, path step.pt", "Loss", "Test accuracy", "Throughput of all ranks", "Time line",
        "optimizer step", "images/s", "%",
    ):  # fmt: skip
        assert text in page.texts, text
    assert page.tags.count("svg") == 4
    assert page.tags.count("polyline") == 2


def test_the_page_needs_nothing_from_outside() -> None:
    html = render(run(), SUMMARY)
    assert not re.search(r"https?:|//|url\(|@import|src=|href=", html)
    assert "script" not in Page(html).tags


def test_what_is_missing_is_a_dash() -> None:
    page = Page(render([], {"name": "empty", "state": "stopped"}))
    assert page.texts.count("no data") == 3
    assert page.texts.count("–") > 10  # noqa: RUF001


@pytest.mark.parametrize("tail", ["line one\nline <two>", ["line one", "line <two>"], ["line one\n", "line <two>\n"]])
def test_a_failure_is_shown_with_everything_that_is_known(tail: object) -> None:
    failure = {
        "node": "node2", "rank": 0, "exit_code": None, "signal": "SIGKILL", "reason": "out of memory", "log_tail": tail,
        "hint": "a smaller batch",
    }  # fmt: skip
    page = Page(render(run(), SUMMARY | {"state": "failed", "failure": failure}))
    assert "node node2 · rank 0 · signal SIGKILL" in page.texts
    assert "line one\nline <two>" in page.texts
    assert "a smaller batch" in page.texts
    assert page.texts.count("out of memory") >= 2, "in the box and among the events"


def test_an_end_that_nobody_saw_is_no_failure() -> None:
    failure = dict.fromkeys(("node", "rank", "exit_code", "signal", "hint")) | {"reason": "it is gone", "log_tail": []}
    page = Page(render(run(), SUMMARY | {"state": "unknown", "exit_code": 4, "wall_s": None, "failure": failure}))
    assert ("class", "badge unknown") in page.attributes
    assert "Nobody knows how it ended" in page.texts and page.texts.count("it is gone") >= 2
    assert "Failure" not in page.texts and ("class", "e-failure") not in page.attributes


def test_nothing_of_the_runs_becomes_markup() -> None:
    evil = "<script>alert('1')</script>\"&"
    summary = dict.fromkeys(SUMMARY, evil) | {
        "failure": {"reason": evil, "node": evil, "log_tail": [evil], "hint": evil}
    }
    records = [{"kind": evil, "event": evil, "dataset": evil, evil: evil}, {"event": "start", "model": evil}]
    page = Page(render(records, summary))
    assert "script" not in page.tags
    assert all(value is None or "<" not in value for _, value in page.attributes)
    assert evil in page.texts


@example(records=[{"step": -1, "loss": 0}], summary={})
@example(records=[{"step": 10**400, "epoch": -1e29, "loss": 0}, {"epoch": -1e29, "loss": 1}], summary={})
@example(records=[{"event": "x", "at": -1.7e308}, {"event": "x", "at": 1.7e308}], summary={"wall_s": 1.7e308})
@example(records=[{"event": "start", "dataset": "\ud800", "\ud800": "\x00"}], summary={})
@example(records=[], summary={"name": "\udcff", "failure": {"reason": "\x1b[2J", "log_tail": ["\x1b[2J", {}]}})
@given(records=RECORDS, summary=st.dictionaries(st.sampled_from(list(SUMMARY)), VALUES))
def test_any_records_make_a_whole_page(records: list[dict[str, Any]], summary: dict[str, Any]) -> None:
    html = render(records, summary)
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", html)
    page = Page(html.encode().decode())
    assert "script" not in page.tags
    for drawing in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        _assert_inside(drawing)


def test_lists_in_lists_in_lists_make_a_whole_page() -> None:
    records = [{"event": "start", "dataset": DEEP}, {"event": "x", "a": DEEP}, {"event": DEEP}, {"kind": DEEP}]
    summary = {"name": DEEP, "state": DEEP, "failure": {"reason": DEEP, "log_tail": [DEEP], "hint": DEEP}}
    for failure in (summary["failure"], DEEP):
        Page(render(records, summary | {"failure": failure}))


def _assert_inside(drawing: str) -> None:
    """Every number of a drawing is one, and lies in its frame."""
    root = ElementTree.fromstring(drawing)  # noqa: S314 - made here
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for each in root.iter():
        for name, high in (("cx", width), ("cy", height), ("x", width), ("y", height)):
            assert -1 <= float(each.get(name, "0")) <= high + 1, ElementTree.tostring(each)
        for x, y in re.findall(r"(\S+),(\S+)", each.get("points", "")):
            assert 0 <= float(x) <= width and 0 <= float(y) <= height


@example(points=[(-1.0, 0.0)], end=-1.0)
@example(points=[(-1e29, 0.0)], end=-1e29)
@example(points=[(0.0, -1e29), (0.0, -1e29)], end=0.0)
@example(points=[(3.0, 1.0), (1.0, 1.0), (2.0, 1.0)], end=2.0)
@example(points=[(1.0, math.nan), (math.inf, 1.0), (5e-324, 5e-324)], end=math.nan)
@example(points=[(1.0, 1.0)], end=math.inf)
@given(points=st.lists(st.tuples(NUMBERS.map(_float), NUMBERS.map(_float))), end=NUMBERS.map(_float))
def test_any_points_make_a_drawing_inside_its_frame(points: list[tuple[float, float]], end: float) -> None:
    series = Series(label="</svg>\ud800", points=points, color=0, dots=True)
    figure = ElementTree.fromstring(  # noqa: S314 - made here
        chart("t", [series], x_end=end, x_label="x", y_label="y").encode("utf-8", "replace")
    )
    for drawing in figure.iter("svg"):
        _assert_inside(ElementTree.tostring(drawing, encoding="unicode"))


@example(seconds=[-1.7e308, 1.7e308], end=-5.0)
@example(seconds=[math.inf, math.nan], end=math.nan)
@example(seconds=[0.0], end=5e-324)
@given(seconds=st.lists(NUMBERS.map(_float), min_size=1, max_size=5), end=NUMBERS.map(_float))
def test_any_moments_make_a_time_line_inside_its_frame(seconds: list[float], end: float) -> None:
    marks = [Mark(seconds=each, event="start", text="<x>") for each in seconds]
    _assert_inside(timeline(marks, end=end, kinds=("start",)))


def test_a_long_run_makes_a_small_page_and_loses_no_spike() -> None:
    points = [(float(step), 1.0) for step in range(100_000)]
    points[70_123] = (70_123.0, 9.0)
    points[30_001] = (30_001.0, math.nan)
    thinned = thin(points)
    assert len(thinned) <= MOST_POINTS
    assert (70_123.0, 9.0) in thinned
    assert thinned == sorted(thinned)
    checkpoints = [{"event": "checkpoint", "step": step, "at": 1000.0 + step} for step in range(5000)]
    html = render(run(20_000) + checkpoints, SUMMARY)
    assert len(html) < 150_000
    assert "earlier events are not listed" in html


@given(low=st.floats(-1e12, 1e12), span=st.floats(0, 1e12))
def test_ticks_are_few_rise_and_enclose(low: float, span: float) -> None:
    found = ticks(low, low + span)
    assert 2 <= len(found) <= 9
    assert found == sorted(set(found))
    tolerance = max(span, abs(low) * 1e-6, 1e-9) * 1e-3
    assert found[0] <= low + tolerance
    assert found[-1] >= low + span - tolerance


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(0, 100, [0, 20, 40, 60, 80, 100]), (0.1, 0.9, [0, 0.2, 0.4, 0.6, 0.8, 1])]
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.03125, "0.03125"), (2.5, "2.5"), (9450.2, "9450"), (12500, "12.5k"), (3e6, "3M"), (-2e9, "-2G")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert compact(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((seconds, MISSING) for seconds in (None, math.inf, math.nan, 1.7e308)),
        (0.04, "0.0 s"),
        (59.94, "59.9 s"),
        (3599.9, "60 min 0 s"),
        (7500, "2 h 5 min"),
    ],
)
def test_durations_read_like_speech(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text.replace("60 min 0 s", "1 h 0 min")
