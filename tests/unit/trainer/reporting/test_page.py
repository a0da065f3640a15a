"""The page of a run: whole, self-contained, and safe with anybody's records."""

import math
import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.reporting.charts import MOST_POINTS, Series, chart, compact, thin, ticks
from trainer.reporting.page import duration, render

ANY = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text() | st.floats(), max_size=2)
)
FIELDS = ["kind", "event", "step", "epoch", "at", "time_s", "loss", "images_per_s", "test_accuracy", "test_loss"]
EVENTS = st.sampled_from(["epoch", "step", "event", "checkpoint", "start"])
RECORDS = st.lists(st.dictionaries(st.sampled_from(FIELDS) | st.text(), ANY | EVENTS))


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


@settings(max_examples=60)
@given(RECORDS, st.dictionaries(st.sampled_from(list(SUMMARY)), ANY | st.dictionaries(st.text(), ANY)))
def test_any_records_make_a_whole_page(records: list[dict[str, Any]], summary: dict[str, Any]) -> None:
    Page(render(records, summary))


@given(st.lists(st.tuples(st.floats(), st.floats())), st.floats(0, 1e9))
def test_any_points_make_a_drawing_inside_its_frame(points: list[tuple[float, float]], end: float) -> None:
    html = chart(
        "t", [Series(label="s", points=sorted(points), color=0, dots=True)], x_end=end, x_label="x", y_label="y"
    )
    figure = ElementTree.fromstring(html)  # noqa: S314 - made above
    for circle in figure.iter("circle"):
        assert 0 <= float(circle.get("cx", "nan")) <= 480
        assert 0 <= float(circle.get("cy", "nan")) <= 260
    assert "nan" not in html.replace("nano", "")


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


@given(st.floats(-1e12, 1e12), st.floats(0, 1e12))
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
    [(None, "–"), (0.04, "0.0 s"), (59.94, "59.9 s"), (3599.9, "60 min 0 s"), (7500, "2 h 5 min")],  # noqa: RUF001
)
def test_durations_read_like_speech(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text.replace("60 min 0 s", "1 h 0 min")
