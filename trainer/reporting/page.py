"""report.html: a run on one page that needs nothing else: no script, no network, no other file.

To show something new, first record it: in `metrics.jsonl` (`training/loop.py`; for the start `training/results.py`), or
in the summary (`launcher/follow/summary.py`, and `training/results.py` for runs without launcher). Then add it here:

- a figure at the top of the page: a row in `_results`; computed from the records, a field of `summary.RunFigures`;
- a fact of the set-up: its name in `SETUP`, if it is in the start event, else a row in `_setup`;
- a curve: a `Series` of `_charts`;
- a kind of event on the time line: its name in `EVENTS`, and its colour (`e-<name>`) in `style.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from trainer.reporting.charts import Mark, Point, Series, chart, compact, timeline
from trainer.reporting.style import CSS
from trainer.reporting.summary import LARGEST, number, summarize

MISSING = "–"  # noqa: RUF001 - a dash is meant

EVENTS = ("start", "resume", "checkpoint", "warning", "stopped", "failure", "done", "other")
"""Rows of the time line, from top to bottom; an event of another name is in the last."""
SETUP = ("dataset", "model", "global_batch", "lr", "epochs", "total_steps", "device", "precision", "seed", "torch")
"""Fields of the start event that describe the run, in the order of the page."""
LISTED_CHECKPOINTS, LISTED_EVENTS = 5, 100
"""How many of the last ones the list of events shows."""

_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Characters that a page can't hold: control codes, and halves of pairs, which UTF-8 doesn't have."""

Record = Mapping[str, Any]


def render(records: Sequence[Record], summary: Record) -> str:
    """Return the page, from metrics.jsonl's records and summary.json's content, whatever these lack or garble."""
    name = _text(summary.get("name"))
    state = _string(summary.get("state") or "running")
    known = state if state in ("succeeded", "failed", "stopped", "unknown") else "running"
    marks = _marks(records, summary)
    body = [
        f'<header><h1>{name}</h1><span class="badge {known}">{escape(state)}</span>'
        f"<p>Ringmaster training run, started {_clock(summary.get('started_at'))}</p></header>",
        _failure(summary.get("failure"), "Nobody knows how it ended" if state == "unknown" else "Failure"),
        _facts(_results(records, summary), "results"),
        f'<section class="charts">{"".join(_charts(records))}{_time_line(marks, summary)}</section>',
        _events(marks),
        f"<h2>Set-up</h2>{_facts(_setup(records, summary), 'setup')}",
    ]
    return _UNFIT.sub(
        "\ufffd",
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{name} – {escape(state)}</title><style>{CSS}</style></head>"  # noqa: RUF001
        f"<body><main>{''.join(body)}</main></body></html>\n",
    )


def _text(value: Any) -> str:
    """Return any value, escaped: numbers short, lists with commas, a missing value as a dash."""
    if value is None or value == "" or (isinstance(value, float) and not math.isfinite(value)):
        return MISSING
    if isinstance(value, float):
        return escape(f"{value:.6g}")
    if isinstance(value, list | tuple):
        items = (escape(_string(item)) if isinstance(item, list | tuple) else _text(item) for item in value)
        return ", ".join(items) or MISSING
    return escape(_string(value))


def _string(value: Any) -> str:
    try:
        return str(value)
    except (RecursionError, ValueError):  # lists in lists in lists; a number of thousands of digits
        return "…"


def _clock(moment: Any) -> str:
    """Return an ISO time as people write it."""
    return _text(moment).replace("T", " ").replace("+00:00", " UTC")


def duration(seconds: float | None) -> str:
    """Return seconds as people say them: 4.2 s, 3 min 20 s, 2 h 5 min."""
    if seconds is None or not abs(seconds) < LARGEST:
        return MISSING
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _results(records: Sequence[Record], summary: Record) -> list[tuple[str, str]]:
    figures = summarize(records)
    accuracy, rate = number(summary, "test_accuracy"), number(summary, "images_per_s")
    return [
        ("Test accuracy", MISSING if accuracy is None else f"{accuracy:.2%}"),
        ("Images/s", MISSING if rate is None else f"{rate:,.0f}"),
        ("Wall time", duration(number(summary, "wall_s"))),
        ("First step after", duration(number(summary, "first_step_s"))),
        ("Training loss", MISSING if figures.loss is None else compact(figures.loss)),
        ("Epochs", _text(summary.get("epochs"))),
        ("Steps", _text(figures.step)),
        ("Restarts", _text(summary.get("restarts"))),
    ]


def _setup(records: Sequence[Record], summary: Record) -> list[tuple[str, str]]:
    start: dict[str, Any] = {}
    for record in records:
        start.update(record if record.get("event") == "start" else {})
    rows = [
        ("nodes", summary.get("nodes")),
        ("world size", summary.get("world_size", start.get("world_size"))),
        ("backend", summary.get("backend")),
        ("image", summary.get("image")),
        *((field.replace("_", " "), start.get(field)) for field in SETUP),
        ("checkpoint", summary.get("checkpoint")),
        ("exit code", summary.get("exit_code")),
    ]
    return [(label, _text(value)) for label, value in rows]


def _facts(facts: Iterable[tuple[str, str]], kind: str) -> str:
    return (
        f'<dl class="{kind}">{"".join(f"<div><dt>{label}</dt><dd>{value}</dd></div>" for label, value in facts)}</dl>'
    )


def _failure(failure: Any, title: str) -> str:
    if not isinstance(failure, Mapping):
        return "" if failure is None else f'<section class="failure"><h2>{title}</h2><p>{_text(failure)}</p></section>'
    where = [f"{word} {_text(failure[field])}" for field, word in (("node", "node"), ("rank", "rank"),
             ("exit_code", "exit code"), ("signal", "signal")) if failure.get(field) is not None]  # fmt: skip
    tail = failure.get("log_tail")
    given = tail if isinstance(tail, list | tuple) else [tail or ""]
    lines = "\n".join(_string(line).rstrip("\n") for line in given)
    return (
        f'<section class="failure"><h2>{title}</h2><p><strong>{_text(failure.get("reason"))}</strong></p>'
        + (f"<p>{' · '.join(where)}</p>" if where else "")
        + (f"<p>{_text(failure['hint'])}</p>" if failure.get("hint") else "")
        + (f"<pre>{escape(lines)}</pre>" if lines else "")
        + "</section>"
    )


def _charts(records: Sequence[Record]) -> Iterable[str]:
    epochs = [record for record in records if record.get("kind") == "epoch"]
    steps = [record for record in records if record.get("kind") != "epoch"]
    across = next(
        (key for key in ("step", "epoch", "time_s") if any(number(r, key) is not None for r in records)), "step"
    )
    end = max((number(record, across) or 0.0 for record in records), default=0.0)
    label = {"step": "optimizer step", "epoch": "epoch", "time_s": "seconds"}[across]

    def line(name: str, source: Sequence[Record], key: str, color: int, scale: float = 1, dots: bool = True) -> Series:
        return Series(label=name, points=_points(source, across, key, scale), color=color, dots=dots)

    losses = [line("training", steps, "loss", 0, dots=False), line("test", records, "test_loss", 1)]
    if not losses[0].points:
        losses[0] = line("training, mean of the epoch", epochs, "loss", 0)
    rates = [line("now", steps, "images_per_s", 0, dots=False), line("of the epoch", epochs, "images_per_s", 1)]
    accuracy = [line("test", records, "test_accuracy", 1, 100)]
    yield chart("Loss", losses, x_end=end, x_label=label, y_label="loss")
    yield chart("Test accuracy", accuracy, x_end=end, x_label=label, y_label="%")
    yield chart("Throughput of all ranks", rates, x_end=end, x_label=label, y_label="images/s", zero=True)


def _points(records: Iterable[Record], across: str, key: str, scale: float) -> list[Point]:
    pairs = ((number(record, across), number(record, key)) for record in records)
    # Sorted, since a resumed run records some steps again.
    return sorted((x, y * scale) for x, y in pairs if x is not None and y is not None)


def _marks(records: Sequence[Record], summary: Record) -> list[Mark]:
    """Return the run's events in time, its failure, or why nobody knows of one, last."""
    begin = next((at for record in records if (at := _began(record)) is not None), None)
    marks = [_mark(record, begin) for record in records if record.get("kind") == "event" or "event" in record]
    failure = summary.get("failure")
    if failure is not None:
        reason = failure.get("reason") if isinstance(failure, Mapping) else failure
        moment = max([number(summary, "wall_s") or 0.0, *(mark.seconds for mark in marks)])
        event = "warning" if summary.get("state") == "unknown" else "failure"
        marks.append(Mark(seconds=moment, event=event, text=_string(reason)))
    return marks


def _time_line(marks: Sequence[Mark], summary: Record) -> str:
    if not marks:
        return ""
    drawing = timeline(_spread(marks), end=number(summary, "wall_s") or 0.0, kinds=EVENTS)
    return f"<figure><figcaption>Time line</figcaption>{drawing}</figure>"


def _events(marks: Sequence[Mark]) -> str:
    if not marks:
        return ""
    checkpoints = [mark for mark in marks if mark.event == "checkpoint"]
    hidden = set(map(id, checkpoints[:-LISTED_CHECKPOINTS]))
    listed = [mark for mark in marks if id(mark) not in hidden][-LISTED_EVENTS:]
    left_out = len(marks) - len(listed)
    note = f'<p class="none">{left_out} earlier events are not listed.</p>' if left_out else ""
    rows = "".join(map(_row, listed))
    return f'<h2>Events</h2>{note}<div class="scroll"><table>{rows}</table></div>'


def _row(mark: Mark) -> str:
    kind = f'<td class="e-{mark.event}">{mark.event}</td>'
    return f"<tr><td>{duration(mark.seconds)}</td>{kind}<td>{escape(mark.text)}</td></tr>"


def _began(record: Record) -> float | None:
    """Return the Unix time at which the trainer that wrote this record started."""
    at, time_s = number(record, "at"), number(record, "time_s")
    return None if at is None else at - (time_s or 0.0)


def _mark(record: Record, begin: float | None) -> Mark:
    at = number(record, "at")
    seconds = (number(record, "time_s") or 0.0) if at is None or begin is None else at - begin
    event = _string(record.get("event"))
    details = [
        _string(value) if key == "message" else f"{str(key).replace('_', ' ')} {_string(value)}"
        for key, value in record.items()
        if key not in ("kind", "event", "time_s", "at", *SETUP)
    ]
    if event not in EVENTS:
        details.insert(0, event)
    return Mark(seconds=max(seconds, 0.0), event=event if event in EVENTS else "other", text=", ".join(details)[:2000])


def _spread(marks: Sequence[Mark]) -> list[Mark]:
    """Thin out hundreds of dots: keep every n-th event of each kind, and the last."""
    kept: list[Mark] = []
    for kind in EVENTS:
        of_kind = [mark for mark in marks if mark.event == kind]
        kept += of_kind[:: -max(1, math.ceil(len(of_kind) / 200))]
    return kept
